//! What somebody without the key, but with the source and the database, can do to a chain; for tests.

use super::record::Record;
use crate::database::sql;
use crate::writing::{Done, Writing};
use crate::{Result, Store};

/// Links the records from `from` to `to` anew: each names the one before it and has a hash that fits. With `head` the
/// last of them becomes the end of the chain.
pub(crate) async fn rechain(store: &Store, from: i64, to: i64, head: bool) -> Result<()> {
    let node = store.chain().node().to_owned();
    store
        .write(None, async move |writing| {
            for seq in from..=to {
                let Some(mut record) = find(writing, &node, seq).await? else { continue };
                if let Some(before) = find(writing, &node, seq - 1).await? {
                    record.prev_hash = before.hash;
                }
                record.hash = record.hash_at(seq);
                let update = sql("UPDATE audit SET prev_hash = $3, hash = $4 WHERE node = $1 AND seq = $2");
                let update = update.bind(&*node).bind(seq).bind(record.prev_hash).bind(&*record.hash);
                writing.run(update).await?;
                if head {
                    let update = sql("UPDATE audit_heads SET seq = $2, hash = $3 WHERE node = $1");
                    writing.run(update.bind(&*node).bind(seq).bind(record.hash)).await?;
                }
            }
            Ok(Done::Keep(()))
        })
        .await
}

async fn find(writing: &mut Writing, node: &str, seq: i64) -> Result<Option<Record>> {
    let query = sql("SELECT * FROM audit WHERE node = $1 AND seq = $2").bind(node).bind(seq);
    writing.row(query).await?.as_ref().map(Record::read).transpose()
}
