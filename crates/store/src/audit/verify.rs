//! Checking a chain: its links, its signed checkpoints, its anchor.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sandstorm_types::Timestamp;

use super::record::{Record, genesis};
use super::{AuditKey, AuditReport, Checkpoint, Kind, Tampering, anchor, diagnosis};
use crate::Result;
use crate::database::{Connection, Database, sql};

/// Records that are read at a time.
const BATCH: u32 = 1000;
/// How long a busy disk may take to write the first line of an anchor.
const UNDER_WAY: Duration = Duration::from_secs(5);

/// What a walk along the records saw.
#[derive(Debug, Default)]
struct Walk {
    records: u64,
    first: u64,
    last: u64,
    last_hash: String,
    /// Hashes of the records that something signed speaks of.
    hashes: BTreeMap<u64, String>,
    /// The first record that does not follow from the one before it.
    broken: Option<u64>,
}

pub(super) async fn verify(database: &Database, key: &AuditKey, anchor: &Path) -> Result<AuditReport> {
    let node = key.node();
    let mut report = AuditReport { node: node.clone(), ..AuditReport::default() };
    let mut signed = Signed::default();
    // The anchor first: its lines are in the order in which they were signed, and what is anchored is in the database
    // already. All else is seen at one moment, since others go on writing.
    let anchored = signed.read_anchor(anchor, key, &node, &mut report)?;
    let connection = &mut database.snapshot().await?;
    signed.read_checkpoints(connection, key, &node, &mut report).await?;
    let (start, start_hash) = signed.cut.clone().unwrap_or_else(|| (0, genesis(&node)));

    let walk = walk(connection, &node, (start, &start_hash), &signed.points).await?;
    let head = head(connection, &node).await?;
    (report.records, report.first, report.last) = (walk.records, walk.first, walk.last);
    if let Some(broken) = walk.broken {
        report.tampering.extend(diagnosis::diagnose(connection, &node, (start, &start_hash), broken).await?);
    }
    judge_tail(&walk, head.as_ref(), start, &signed, &mut report);
    judge_points(&walk, start, &signed, &mut report);
    report.unanchored = walk.last.saturating_sub(anchored.unwrap_or(0));
    if anchored.is_none() && !signed.points.is_empty() && !appears(anchor, &node, signed.oldest).await? {
        report.tampering.push(Tampering::AnchorMissing);
    }
    let others = other_nodes(connection, &node).await?;
    if database.is_sqlite() {
        // The file has one owner, so records of another node were brought there.
        report.tampering.extend(others.into_iter().map(|node| Tampering::ForeignChain { node }));
    } else {
        report.other_nodes = others;
    }
    Ok(report)
}

/// What was signed: for each record the hashes that it is said to have, the first one first.
#[derive(Debug, Default)]
struct Signed {
    points: BTreeMap<u64, Vec<String>>,
    /// Where the old end was cut off last.
    cut: Option<(u64, String)>,
    /// When the first checkpoint that is still here was made.
    oldest: Option<Timestamp>,
}

/// Whether there is an anchor, or comes to be one while its first line may still be under way: it is written after the
/// commit that it speaks of.
async fn appears(anchor: &Path, node: &str, oldest: Option<Timestamp>) -> Result<bool> {
    // By a clock that nobody sets: the moment may lie in the future of the other one.
    let began = Instant::now();
    loop {
        if anchor::newest(anchor, node)?.is_some() {
            return Ok(true);
        }
        let old = oldest.is_none_or(|oldest| Timestamp::now().since(oldest) > UNDER_WAY);
        if old || began.elapsed() > UNDER_WAY {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl Signed {
    fn add(&mut self, checkpoint: &Checkpoint) {
        let hashes = self.points.entry(checkpoint.seq).or_default();
        if !hashes.contains(&checkpoint.hash) {
            hashes.push(checkpoint.hash.clone());
        }
    }

    async fn read_checkpoints(
        &mut self,
        connection: &mut Connection,
        key: &AuditKey,
        node: &str,
        report: &mut AuditReport,
    ) -> Result<()> {
        let query = sql("SELECT * FROM audit_checkpoints WHERE node = $1 ORDER BY seq").bind(node);
        for row in connection.rows(query).await? {
            let (checkpoint, mac) = Checkpoint::read(&row)?;
            report.checkpoints += 1;
            if !key.signed(&checkpoint.text(node), &mac) {
                report.tampering.push(Tampering::BadCheckpoint { seq: checkpoint.seq });
                continue;
            }
            self.oldest = Some(self.oldest.map_or(checkpoint.at, |oldest| oldest.min(checkpoint.at)));
            if checkpoint.kind == Kind::Cut {
                self.cut = Some((checkpoint.seq, checkpoint.hash.clone()));
            }
            self.add(&checkpoint);
        }
        Ok(())
    }

    /// Gives the highest number that is anchored.
    fn read_anchor(
        &mut self,
        path: &Path,
        key: &AuditKey,
        node: &str,
        report: &mut AuditReport,
    ) -> Result<Option<u64>> {
        let mut newest = None;
        let mut begun = false;
        let mut before = String::new();
        for (index, line) in anchor::lines(path)?.into_iter().enumerate() {
            let number = index as u64 + 1;
            let Some(line) = line else {
                report.tampering.push(Tampering::BadAnchor { line: number });
                continue;
            };
            if line.node != node {
                report.tampering.push(Tampering::ForeignChain { node: line.node });
            } else if anchor::genuine(&line, key, &before) && line.checkpoint.seq == 0 {
                (begun, newest) = (true, newest.max(Some(0)));
            } else if anchor::genuine(&line, key, &before) {
                newest = newest.max(Some(line.checkpoint.seq));
                self.add(&line.checkpoint);
            } else {
                report.tampering.push(Tampering::BadAnchor { line: number });
            }
            before = line.mac;
        }
        // It is begun before the first record; earlier versions did so with it. Otherwise it was begun anew, and says so in no
        // line of its own.
        let bad = report.tampering.iter().any(|it| matches!(it, Tampering::BadAnchor { .. }));
        if newest.is_some() && !bad && !begun && !self.points.contains_key(&1) {
            report.tampering.push(Tampering::BadAnchor { line: 1 });
        }
        Ok(newest)
    }
}

async fn walk(
    connection: &mut Connection,
    node: &str,
    (start, start_hash): (u64, &str),
    points: &BTreeMap<u64, Vec<String>>,
) -> Result<Walk> {
    let mut walk = Walk { last: start, last_hash: start_hash.to_owned(), ..Walk::default() };
    let mut after = i64::MIN;
    loop {
        let records = batch(connection, node, after).await?;
        let Some(end) = records.last() else { return Ok(walk) };
        after = end.seq;
        for record in records {
            let seq = u64::try_from(record.seq).unwrap_or(0);
            let follows = seq == walk.last + 1 && record.prev_hash == walk.last_hash;
            if !follows || record.hash_at(record.seq) != record.hash {
                walk.broken.get_or_insert(seq);
            }
            if points.contains_key(&seq) {
                walk.hashes.insert(seq, record.hash.clone());
            }
            if walk.records == 0 {
                walk.first = seq;
            }
            walk.records += 1;
            walk.last = seq;
            walk.last_hash = record.hash;
        }
    }
}

/// The next records after a number.
pub(super) async fn batch(connection: &mut Connection, node: &str, after: i64) -> Result<Vec<Record>> {
    let query = sql("SELECT * FROM audit WHERE node = $1 AND seq > $2 ORDER BY seq LIMIT $3");
    let rows = connection.rows(query.bind(node).bind(after).bind(BATCH)).await?;
    rows.iter().map(Record::read).collect()
}

pub(super) async fn head(connection: &mut Connection, node: &str) -> Result<Option<(u64, String)>> {
    let row = connection.row(sql("SELECT seq, hash FROM audit_heads WHERE node = $1").bind(node)).await?;
    row.map(|row| Ok((row.get("seq")?, row.get("hash")?))).transpose()
}

/// Compares the last record with what the head and the signatures say must be there.
fn judge_tail(
    walk: &Walk,
    head: Option<&(u64, String)>,
    start: u64,
    signed: &Signed,
    report: &mut AuditReport,
) {
    let (head_seq, head_hash) = head.cloned().unwrap_or((0, String::new()));
    let last_signed = signed.points.keys().next_back().copied().unwrap_or(0);
    let expected = head_seq.max(last_signed);
    if expected > walk.last {
        report.tampering.push(Tampering::TruncatedTail { last: walk.last, expected });
    } else if head_seq < walk.last && walk.broken.is_none() {
        let from = (head_seq + 1).max(start + 1);
        report.tampering.extend((from..=walk.last).take(100).map(|seq| Tampering::Inserted { seq }));
    } else if head_seq == walk.last && head_hash != walk.last_hash && walk.broken.is_none() {
        report.tampering.push(Tampering::Modified { seq: walk.last });
    }
}

/// Compares records with what was signed about them.
fn judge_points(walk: &Walk, start: u64, signed: &Signed, report: &mut AuditReport) {
    let mut agreed = (start > 0).then_some(start);
    for (&seq, hashes) in &signed.points {
        if hashes.len() > 1 {
            report.tampering.push(Tampering::Forked { seq });
        }
        match walk.hashes.get(&seq) {
            Some(hash) if hashes.first() == Some(hash) => agreed = Some(seq),
            // A chain that is broken was explained already; here it is whole and another one.
            Some(_) if walk.broken.is_none() => {
                report.tampering.push(match agreed {
                    Some(after) => Tampering::TruncatedAndContinued { after },
                    None => Tampering::Rewritten,
                });
                return;
            }
            _ => {}
        }
    }
}

async fn other_nodes(connection: &mut Connection, node: &str) -> Result<Vec<String>> {
    let query = sql("SELECT DISTINCT node FROM audit WHERE node <> $1 ORDER BY node").bind(node);
    connection.rows(query).await?.iter().map(|row| row.get("node")).collect()
}
