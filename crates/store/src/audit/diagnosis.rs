//! Finding out what was done to a chain that does not hold.
//!
//! A record's hash covers its number and the hash before it. So a record that was moved still proves where it stood, one
//! that was put in between is named by no successor, and one that is missing leaves a successor that names it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Tampering;
use super::record::Record;
use super::verify::batch;
use crate::Result;
use crate::database::Connection;

/// No more findings than this; the first ones are what matters.
const MOST: usize = 1000;

/// What is known of the record at a place.
struct Found {
    seq: i64,
    hash: String,
    prev_hash: String,
    /// Where it stood when it was written; `None` when its hash fits no place.
    original: Option<i64>,
}

pub(super) async fn diagnose(
    connection: &mut Connection,
    node: &str,
    (start, start_hash): (u64, &str),
    broken: u64,
) -> Result<Vec<Tampering>> {
    let start = i64::try_from(start).unwrap_or(i64::MAX);
    let mut found = read(connection, node, start, start_hash).await?;
    discredit_unlinked(&mut found);
    let mut tampering = judge(&found, start);
    if tampering.is_empty() {
        // Broken, and still nothing fits: say at least where.
        tampering.push(Tampering::Modified { seq: broken });
    }
    tampering.truncate(MOST);
    Ok(tampering)
}

async fn read(connection: &mut Connection, node: &str, start: i64, start_hash: &str) -> Result<Vec<Found>> {
    let places = places(connection, node).await?;
    // Where the records that were read so far stood when they were written.
    let mut originals = HashMap::from([(start_hash.to_owned(), start)]);
    let mut found = Vec::new();
    let mut after = i64::MIN;
    loop {
        let records = batch(connection, node, after).await?;
        let Some(end) = records.last() else { return Ok(found) };
        after = end.seq;
        for record in records {
            let before = originals.get(&record.prev_hash).or_else(|| places.get(&record.prev_hash));
            let original = original(&record, before.copied());
            if let Some(original) = original {
                originals.insert(record.hash.clone(), original);
            }
            found.push(Found { seq: record.seq, hash: record.hash, prev_hash: record.prev_hash, original });
        }
    }
}

async fn places(connection: &mut Connection, node: &str) -> Result<HashMap<String, i64>> {
    let mut places = HashMap::new();
    let mut after = i64::MIN;
    loop {
        let records = batch(connection, node, after).await?;
        let Some(end) = records.last() else { return Ok(places) };
        after = end.seq;
        places.extend(records.into_iter().map(|record| (record.hash, record.seq)));
    }
}

/// Where the record proves to have stood: here, behind its predecessor, or close by.
fn original(record: &Record, before: Option<i64>) -> Option<i64> {
    let close = (-8..=8).map(|distance| record.seq.saturating_add(distance));
    let behind = before.map(|before| before.saturating_add(1));
    std::iter::once(record.seq).chain(behind).chain(close).find(|seq| record.hash_at(*seq) == record.hash)
}

/// A record whose successor names another predecessor was written over, or put in, by somebody who knows how hashes are
/// made but cannot change what comes after.
fn discredit_unlinked(found: &mut [Found]) {
    let mut named: HashMap<i64, BTreeSet<String>> = HashMap::new();
    for record in found.iter() {
        if let Some(original) = record.original {
            named.entry(original - 1).or_default().insert(record.prev_hash.clone());
        }
    }
    for record in found {
        let named = record.original.and_then(|original| named.get(&original));
        if named.is_some_and(|named| !named.contains(&record.hash)) {
            record.original = None;
        }
    }
}

fn judge(found: &[Found], start: i64) -> Vec<Tampering> {
    let mut known: BTreeMap<i64, i64> = BTreeMap::new();
    for record in found {
        if let Some(original) = record.original {
            known.entry(original).or_insert(record.seq);
        }
    }
    let mut claimed = BTreeSet::new();
    let mut tampering = Vec::new();
    let mut expected = start + 1;
    for record in found {
        let seq = unsigned(record.seq);
        match record.original {
            Some(original) if original <= start || known.get(&original) != Some(&record.seq) => {
                tampering.push(Tampering::Inserted { seq });
            }
            Some(original) => expected = original + 1,
            None if !known.contains_key(&expected) && claimed.insert(expected) => {
                tampering.push(Tampering::Modified { seq });
                expected += 1;
            }
            None => tampering.push(Tampering::Inserted { seq }),
        }
    }
    let in_place: BTreeSet<i64> = known.keys().copied().chain(claimed).collect();
    let mut expected = start + 1;
    for original in in_place {
        if original > expected {
            tampering.push(Tampering::Deleted { from: unsigned(expected), to: unsigned(original - 1) });
        }
        expected = original + 1;
    }
    // In the order of their places; whoever is not part of the longest rising row was moved.
    let order: Vec<(i64, i64)> = found
        .iter()
        .filter_map(|record| record.original.map(|original| (record.seq, original)))
        .filter(|(seq, original)| known.get(original) == Some(seq))
        .collect();
    let rising = longest_rising(&order);
    let moved = order.iter().filter(|(seq, _)| !rising.contains(seq));
    tampering.extend(
        moved.map(|(seq, original)| Tampering::Reordered {
            seq: unsigned(*seq),
            original: unsigned(*original),
        }),
    );
    tampering
}

/// The places whose originals form the longest rising row, by patience sorting.
fn longest_rising(order: &[(i64, i64)]) -> BTreeSet<i64> {
    let mut tops: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(order.len());
    for (index, (_, original)) in order.iter().enumerate() {
        let pile = tops.partition_point(|top| order[*top].1 < *original);
        before.push(pile.checked_sub(1).map(|left| tops[left]));
        if pile == tops.len() {
            tops.push(index);
        } else {
            tops[pile] = index;
        }
    }
    let mut rising = BTreeSet::new();
    let mut next = tops.last().copied();
    while let Some(index) = next {
        rising.insert(order[index].0);
        next = before[index];
    }
    rising
}

fn unsigned(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_swapped_is_outside_the_rising_row() {
        let order: Vec<(i64, i64)> = [4, 8, 6, 7, 5, 9].into_iter().zip(4..).map(|(o, s)| (s, o)).collect();
        assert_eq!(longest_rising(&order), BTreeSet::from([4, 6, 7, 9]));
        assert_eq!(longest_rising(&[]), BTreeSet::new());
    }
}
