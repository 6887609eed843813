//! Requests that a client may send twice and mean once.

use std::time::Duration;

use bytes::Bytes;
use sandstorm_types::{TenantId, Timestamp};

use crate::audit::hex;
use crate::database::{Row, Statement, sql};
use crate::writing::{Done, Writing};
use crate::{Result, Store, StoreError};

/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// How often this server says that it lives while it has requests.
const BEAT: Duration = Duration::from_secs(10);
/// After this long without a beat a server elsewhere counts as gone.
const GONE: Duration = Duration::from_secs(60);

/// What is known of a request's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Do the work, then finish or abandon.
    New,
    /// It was done; this was the answer.
    Stored(StoredAnswer),
    /// The key was used with another body.
    OtherBody,
    /// Somebody who is alive is doing it.
    InFlight,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    pub status: u16,
    pub content_type: String,
    pub body: Bytes,
}

const ONE: &str = "SELECT * FROM idempotency WHERE tenant = $1 AND route = $2 AND key = $3";

/// An entry as it was found.
struct Entry {
    body_hash: String,
    node: String,
    instance: String,
    begun_at: Timestamp,
    answer: Option<StoredAnswer>,
}

impl Entry {
    fn read(row: &Row) -> Result<Self> {
        let status: Option<u64> = row.optional("status")?;
        let answer = status.map(|status| {
            Ok::<_, StoreError>(StoredAnswer {
                status: u16::try_from(status)
                    .map_err(|_| StoreError::corrupt("a stored status is too large"))?,
                content_type: row.get("content_type")?,
                body: row.get::<Vec<u8>>("body")?.into(),
            })
        });
        Ok(Self {
            body_hash: row.get("body_hash")?,
            node: row.get("node")?,
            instance: row.get("instance")?,
            begun_at: row.get("begun_at")?,
            answer: answer.transpose()?,
        })
    }
}

impl Store {
    /// Claims a key for 24 hours. What an earlier server of this state directory left in flight is taken over; so is
    /// what a server elsewhere left that no longer calls [`Store::beat`].
    pub async fn begin_idempotent(
        &self,
        tenant: TenantId,
        route: &str,
        key: &str,
        body_hash: &[u8],
        at: Timestamp,
    ) -> Result<Begun> {
        let body_hash = hex(body_hash);
        // By itself, since what follows may be undone, and not with each request.
        if self.beat_is_due(at, BEAT) {
            self.beat(at).await?;
        }
        let asked = Asked { tenant, route: route.to_owned(), key: key.to_owned(), body_hash, at };
        let owner = Owner { node: self.chain().node().to_owned(), instance: self.instance().to_owned() };
        self.write(None, async move |writing| asked.begin(writing, &owner).await).await
    }

    /// Whether the answer was stored: not when somebody else took the key over meanwhile.
    pub async fn finish_idempotent(
        &self,
        tenant: TenantId,
        route: &str,
        key: &str,
        answer: &StoredAnswer,
    ) -> Result<bool> {
        let text = "UPDATE idempotency SET status = $5, content_type = $6, body = $7
            WHERE tenant = $1 AND route = $2 AND key = $3 AND instance = $4 AND status IS NULL";
        let update = sql(text).bind(tenant).bind(route).bind(key).bind(self.instance());
        let update =
            update.bind(u32::from(answer.status)).bind(&*answer.content_type).bind(answer.body.to_vec());
        self.write(None, async move |writing| Ok(Done::Keep(writing.run(update.clone()).await? == 1))).await
    }

    /// Frees the key: nothing was done.
    pub async fn abandon_idempotent(&self, tenant: TenantId, route: &str, key: &str) -> Result<()> {
        let text = "DELETE FROM idempotency
            WHERE tenant = $1 AND route = $2 AND key = $3 AND instance = $4 AND status IS NULL";
        let delete = sql(text).bind(tenant).bind(route).bind(key).bind(self.instance());
        self.write(None, async move |writing| writing.run(delete.clone()).await.map(|_| Done::Keep(()))).await
    }

    /// Says that this server lives; to be called every ten seconds or so when several servers share a database.
    pub async fn beat(&self, at: Timestamp) -> Result<()> {
        let beat = "INSERT INTO instances (node, instance, seen_at) VALUES ($1, $2, $3)
            ON CONFLICT (node, instance) DO UPDATE SET seen_at = excluded.seen_at
            WHERE instances.seen_at < excluded.seen_at";
        let beat = sql(beat).bind(self.chain().node()).bind(self.instance()).bind(at);
        self.write(None, async move |writing| writing.run(beat.clone()).await.map(|_| Done::Keep(()))).await
    }
}

/// A request as it came.
struct Asked {
    tenant: TenantId,
    route: String,
    key: String,
    body_hash: String,
    at: Timestamp,
}

/// Who does it.
struct Owner {
    node: String,
    instance: String,
}

impl Asked {
    fn of(&self, text: &'static str) -> Statement {
        sql(text).bind(self.tenant).bind(&*self.route).bind(&*self.key)
    }

    async fn begin(&self, writing: &mut Writing, owner: &Owner) -> Result<Done<Begun>> {
        let claim = "INSERT INTO idempotency (tenant, route, key, body_hash, node, instance, begun_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, route, key) DO NOTHING";
        let claim = self.of(claim).bind(&*self.body_hash).bind(&*owner.node).bind(&*owner.instance);
        if writing.run(claim.bind(self.at)).await? == 1 {
            return Ok(Done::Keep(Begun::New));
        }
        let row = writing.row(self.of(ONE)).await?;
        // It was there a moment ago and is not now: its owner abandoned it, and the client may try again.
        let Some(row) = row else { return Ok(Done::Undo(Begun::InFlight)) };
        let entry = Entry::read(&row)?;
        let expired = entry.begun_at <= self.at.before(KEPT);
        if !expired && entry.body_hash != self.body_hash {
            return Ok(Done::Undo(Begun::OtherBody));
        }
        if let (false, Some(answer)) = (expired, entry.answer.clone()) {
            return Ok(Done::Undo(Begun::Stored(answer)));
        }
        if entry.answer.is_none() && entry.owner_lives(writing, owner, self.at).await? {
            return Ok(Done::Undo(Begun::InFlight));
        }
        let took =
            "UPDATE idempotency SET body_hash = $4, node = $5, instance = $6, begun_at = $7, status = NULL,
            content_type = NULL, body = NULL
            WHERE tenant = $1 AND route = $2 AND key = $3 AND instance = $8 AND begun_at = $9";
        let took = self.of(took).bind(&*self.body_hash).bind(&*owner.node).bind(&*owner.instance);
        let took = took.bind(self.at).bind(entry.instance).bind(entry.begun_at);
        let took = writing.run(took).await? == 1;
        Ok(Done::Keep(if took { Begun::New } else { Begun::InFlight }))
    }
}

impl Entry {
    /// Whether the owner of an entry can still finish it. A state directory has one server at a time, so another
    /// instance of our own node is gone at once.
    async fn owner_lives(&self, writing: &mut Writing, us: &Owner, at: Timestamp) -> Result<bool> {
        if self.instance == us.instance {
            return Ok(true);
        }
        if self.node == us.node {
            return Ok(false);
        }
        let seen = sql("SELECT seen_at FROM instances WHERE node = $1 AND instance = $2");
        let row = writing.row(seen.bind(&*self.node).bind(&*self.instance)).await?;
        Ok(row
            .map(|row| row.get::<Timestamp>("seen_at"))
            .transpose()?
            .is_some_and(|seen| seen > at.before(GONE)))
    }
}
