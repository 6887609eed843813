//! Which server a record belongs to, where several share a database.
//!
//! What a server makes is its own, and it has a lease on it: a row that it changes again and again. Only whoever's instance
//! is in that row writes. Each transaction begins with a look at it and holds it until its end, so that whoever takes a lease
//! over waits for what its holder was writing, and nothing of that holder is written afterwards, however late it wakes.
//!
//! No clock decides. A lease is over when somebody has looked at it for as long as it lasts and it has not changed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sandstorm_types::{SandboxId, Timestamp};

use crate::database::{Row, sql};
use crate::writing::{Done, Writing};
use crate::{ContextRow, ExecRow, OpenEntry, Result, RunRow, SandboxRow, Store};

/// For so long a server of an earlier version counts as living after it was heard of: those have no lease.
const HEARD: Duration = Duration::from_secs(60);

/// Who may change what belongs to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The server.
    pub node: String,
    /// Who may.
    pub instance: String,
    /// Where the state directory of the server is, unless it stopped in order.
    pub place: Option<String>,
    /// Grows while the holder lives.
    pub beats: i64,
    /// How long it may go without growing.
    pub span: Duration,
    /// The server that settles what this one left.
    pub taker: Option<String>,
}

/// What a server left that is gone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Estate {
    pub sandboxes: Vec<SandboxRow>,
    pub execs: Vec<ExecRow>,
    pub contexts: Vec<ContextRow>,
    pub runs: Vec<RunRow>,
    pub entries: Vec<OpenEntry>,
}

/// Keeps whoever lost its lease from writing. It is down until there is a lease.
#[derive(Debug)]
pub(crate) struct Fence {
    node: String,
    instance: String,
    up: AtomicBool,
}

impl Fence {
    pub(crate) fn new(node: String, instance: String) -> Self {
        Self { node, instance, up: AtomicBool::new(false) }
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Whose records are meant where others have some too.
    pub(crate) fn own_node(&self) -> Option<&str> {
        self.is_up().then_some(&*self.node)
    }

    /// The instance is made of hexadecimal digits, by us: it may stand in the text.
    pub(crate) fn ours(&self, column: &str) -> String {
        let instance = &self.instance;
        format!("({column} IS NULL OR {column} IN (SELECT node FROM leases WHERE instance = '{instance}'))")
    }
}

impl Writing {
    /// Ends a `WHERE`: the same as [`Writing::ours`] for what is in the sandbox of this column.
    pub(crate) fn in_ours(&self, sandbox: &str) -> String {
        let ours = self.ours("sandboxes.node");
        format!(" AND EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = {sandbox} AND {ours})")
    }
}

impl Lease {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            node: row.get("node")?,
            instance: row.get("instance")?,
            place: row.optional("place")?,
            beats: row.get("beats")?,
            span: Duration::from_millis(row.get("span_ms")?),
            taker: row.optional("taker")?,
        })
    }
}

impl Store {
    /// The name of this server in its records.
    pub fn node(&self) -> &str {
        self.chain().node()
    }

    /// The lease on this server's own records, whoever has it.
    pub async fn own_lease(&self) -> Result<Option<Lease>> {
        let row = self.database().row(sql("SELECT * FROM leases WHERE node = $1").bind(self.node())).await?;
        row.as_ref().map(Lease::read).transpose()
    }

    /// Whether a lease on this server's own records is one of its earlier self, which cannot live any more: it stopped in
    /// order, or had this very state directory, whose lock is held here now.
    pub fn is_of_earlier_self(&self, lease: &Lease) -> bool {
        let here =
            lease.place.is_none() || (self.place().is_some() && lease.place.as_deref() == self.place());
        lease.taker.is_none() && here
    }

    /// Takes the lease on this server's own records, if it still is as it was found. From then on this store writes only
    /// while it has it.
    pub async fn claim_lease(&self, found: Option<&Lease>) -> Result<bool> {
        let place = self.place().unwrap_or("somewhere");
        let span = i64::try_from(self.lease_span().as_millis()).unwrap_or(i64::MAX);
        let claim = match found {
            None => {
                sql("INSERT INTO leases (node, instance, place, span_ms, beats) VALUES ($1, $2, $3, $4, 1)
                ON CONFLICT (node) DO NOTHING")
            }
            Some(_) => sql(
                "UPDATE leases SET instance = $2, place = $3, span_ms = $4, beats = beats + 1, taker = NULL
                WHERE node = $1 AND instance = $5 AND beats = $6",
            ),
        };
        let claim = claim.bind(self.node()).bind(self.instance()).bind(place).bind(span);
        let claim = match found {
            None => claim,
            Some(lease) => claim.bind(&*lease.instance).bind(lease.beats),
        };
        let claimed =
            self.write(None, async move |writing| Ok(Done::Keep(writing.run(claim.clone()).await? == 1)));
        let claimed = claimed.await?;
        if claimed {
            self.fence().up.store(true, Ordering::Release);
        }
        Ok(claimed)
    }

    /// Says that this server lives. [`StoreError::Superseded`](crate::StoreError::Superseded) when it has no lease any more.
    pub async fn renew_lease(&self) -> Result<()> {
        let renew = sql("UPDATE leases SET beats = beats + 1 WHERE instance = $1").bind(self.instance());
        self.write(None, async move |writing| writing.run(renew.clone()).await.map(|_| Done::Keep(()))).await
    }

    /// Says that this server stops in order: wherever it is started next, it goes on at once.
    pub async fn part(&self) -> Result<()> {
        if !self.fence().is_up() {
            return Ok(());
        }
        let part = sql("UPDATE leases SET place = NULL WHERE node = $1 AND instance = $2");
        let part = part.bind(self.node()).bind(self.instance());
        self.write(None, async move |writing| writing.run(part.clone()).await.map(|_| Done::Keep(()))).await
    }

    /// The leases of all other servers, those that are being settled included.
    pub async fn other_leases(&self) -> Result<Vec<Lease>> {
        let query = sql("SELECT * FROM leases WHERE node <> $1 ORDER BY node").bind(self.node());
        self.database().rows(query).await?.iter().map(Lease::read).collect()
    }

    /// Takes over a lease that was seen not to change for as long as it lasts. False when it has changed meanwhile, or its
    /// holder is writing after all.
    pub async fn take_over(&self, lease: &Lease) -> Result<bool> {
        let span = i64::try_from(self.lease_span().as_millis()).unwrap_or(i64::MAX);
        let (node, instance, beats) = (lease.node.clone(), lease.instance.clone(), lease.beats);
        let (us, our_instance) = (self.node().to_owned(), self.instance().to_owned());
        self.write(None, async move |writing| {
            let text = format!(
                "UPDATE leases SET instance = $1, taker = $2, span_ms = $3, beats = beats + 1 WHERE node IN (
                    SELECT node FROM leases WHERE node = $4 AND instance = $5 AND beats = $6{})",
                writing.skipping_locked()
            );
            let take = sql(text).bind(&*our_instance).bind(&*us).bind(span);
            let take = take.bind(&*node).bind(&*instance).bind(beats);
            Ok(Done::Keep(writing.run(take).await? == 1))
        })
        .await
    }

    /// Whether a lease is one that this server has taken over.
    pub fn has_taken(&self, lease: &Lease) -> bool {
        lease.instance == self.instance() && lease.node != self.node()
    }

    /// All that a server left is settled: nobody holds it any more, and what it said of itself counts no longer.
    pub async fn end_lease(&self, node: &str) -> Result<()> {
        let end = sql("DELETE FROM leases WHERE node = $1 AND instance = $2 AND node <> $3");
        let end = end.bind(node).bind(self.instance()).bind(self.node());
        let forget = sql("DELETE FROM instances WHERE node = $1").bind(node);
        self.write(None, async move |writing| {
            if writing.run(end.clone()).await? > 0 {
                writing.run(forget.clone()).await?;
            }
            Ok(Done::Keep(()))
        })
        .await
    }

    /// What another server left, as far as it has not ended.
    pub async fn left_by(&self, node: &str) -> Result<Estate> {
        let node = Some(node);
        Ok(Estate {
            sandboxes: self.living_sandboxes_of(node).await?,
            execs: self.running_execs_of(node).await?,
            contexts: self.living_contexts_of(node).await?,
            runs: self.unfinished_runs_of(node).await?,
            entries: self.open_entries_of(node).await?,
        })
    }

    /// Snapshots that a server was making which is gone. What there is of them only that server could remove, should it
    /// come back.
    pub async fn abandon_snapshots(&self, node: &str) -> Result<u64> {
        let text = "UPDATE snapshots SET name = NULL, state = 'ending' WHERE node = $1 AND state = 'making'";
        let abandon = sql(text).bind(node);
        self.write(None, async move |writing| writing.run(abandon.clone()).await.map(Done::Keep)).await
    }

    /// The other server that holds a sandbox which has not ended.
    pub async fn held_elsewhere(&self, id: SandboxId) -> Result<Option<String>> {
        let Some(node) = self.fence().own_node() else { return Ok(None) };
        let text = "SELECT node FROM sandboxes WHERE id = $1 AND ended_at IS NULL AND node <> $2";
        let row = self.database().row(sql(text).bind(id).bind(node)).await?;
        row.map(|row| row.get("node")).transpose()
    }

    /// Makes records this server's own that are from before records had a server: these sandboxes, and everything if nobody
    /// else can be meant. Gives how many sandboxes there were.
    pub async fn claim_unowned(&self, present: &[SandboxId], at: Timestamp) -> Result<u64> {
        let (node, present) = (self.node().to_owned(), present.to_vec());
        self.write_long(None, async move |writing| {
            let others = "SELECT node FROM leases WHERE node <> $1 UNION ALL SELECT node FROM instances
                WHERE node <> $1 AND seen_at > $2 LIMIT 1";
            let others = writing.row(sql(others).bind(&*node).bind(at.before(HEARD))).await?;
            let mut claimed = 0;
            if others.is_none() {
                let text = "UPDATE sandboxes SET node = $1 WHERE node IS NULL AND ended_at IS NULL";
                claimed = writing.run(sql(text).bind(&*node)).await?;
                for text in [
                    "UPDATE runs SET node = $1 WHERE node IS NULL AND ended_at IS NULL",
                    "UPDATE snapshots SET node = $1 WHERE node IS NULL",
                ] {
                    writing.run(sql(text).bind(&*node)).await?;
                }
            }
            for id in present.iter().filter(|_| others.is_some()) {
                let text = "UPDATE sandboxes SET node = $1 WHERE id = $2 AND node IS NULL";
                claimed += writing.run(sql(text).bind(&*node).bind(*id)).await?;
            }
            Ok(Done::Keep(claimed))
        })
        .await
    }
}
