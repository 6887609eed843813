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
/// After this long without a beat a server of an earlier version, which has no lease, counts as gone.
const GONE: Duration = Duration::from_secs(60);

/// What is known of a request's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// Do the work as what was named, then finish or abandon.
    New,
    /// It was claimed before and not answered, and whoever did it is gone: a server that ended, or an earlier request to
    /// this one. It is the caller's now, who has to look at what became of what it makes.
    Left(Left),
    /// It was done; this was the answer.
    Stored(StoredAnswer),
    /// The key was used with another body.
    OtherBody,
    /// Somebody who is alive is doing it.
    InFlight,
}

/// A claim that was left without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// What its work goes by; none where an earlier version of this program wrote it.
    pub object: Option<String>,
    /// What the work noted on its way; see [`Store::note_idempotent`].
    pub note: Option<String>,
    /// When the key was claimed first.
    pub begun_at: Timestamp,
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
    left: Left,
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
            left: Left {
                object: row.optional("object")?,
                note: row.optional("note")?,
                begun_at: row.get("begun_at")?,
            },
            answer: answer.transpose()?,
        })
    }
}

impl Store {
    /// Claims a key for 24 hours, for work that goes by `object`: on record before the work begins, so that whoever finds
    /// the claim later can find out what became of it. What an earlier server of this state directory left is given to the
    /// caller; so is what a server elsewhere left whose lease is gone, and what this one left: of its own requests, whoever
    /// asks makes sure that there is one at a time. One elsewhere that never had a lease is gone when it no longer calls
    /// [`Store::beat`].
    pub async fn begin_idempotent(
        &self,
        tenant: TenantId,
        route: &str,
        key: &str,
        body_hash: &[u8],
        object: &str,
        at: Timestamp,
    ) -> Result<Begun> {
        let body_hash = hex(body_hash);
        // By itself, since what follows may be undone, and not with each request.
        if self.beat_is_due(at, BEAT) {
            self.beat(at).await?;
        }
        let (route, key, object) = (route.to_owned(), key.to_owned(), object.to_owned());
        let asked = Asked { tenant, route, key, body_hash, object, at };
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

    /// Has the work begin once more as something else, of which nothing is noted. `false`: somebody else took the key over.
    pub async fn restart_idempotent(
        &self,
        tenant: TenantId,
        route: &str,
        key: &str,
        object: &str,
    ) -> Result<bool> {
        let text = "UPDATE idempotency SET object = $5, note = NULL
            WHERE tenant = $1 AND route = $2 AND key = $3 AND instance = $4 AND status IS NULL";
        let update = sql(text).bind(tenant).bind(route).bind(key).bind(self.instance()).bind(object);
        self.write(None, async move |writing| Ok(Done::Keep(writing.run(update.clone()).await? == 1))).await
    }

    /// Keeps what whoever finds the claim without an answer has to know. `false`: somebody else took the key over.
    pub async fn note_idempotent(
        &self,
        tenant: TenantId,
        route: &str,
        key: &str,
        note: &str,
    ) -> Result<bool> {
        let text = "UPDATE idempotency SET note = $5
            WHERE tenant = $1 AND route = $2 AND key = $3 AND instance = $4 AND status IS NULL";
        let update = sql(text).bind(tenant).bind(route).bind(key).bind(self.instance()).bind(note);
        self.write(None, async move |writing| Ok(Done::Keep(writing.run(update.clone()).await? == 1))).await
    }

    /// Frees the key: nothing was done.
    pub async fn abandon_idempotent(&self, tenant: TenantId, route: &str, key: &str) -> Result<()> {
        let text = "DELETE FROM idempotency
            WHERE tenant = $1 AND route = $2 AND key = $3 AND instance = $4 AND status IS NULL";
        let delete = sql(text).bind(tenant).bind(route).bind(key).bind(self.instance());
        self.write(None, async move |writing| writing.run(delete.clone()).await.map(|_| Done::Keep(()))).await
    }

    /// Gives away what earlier servers of this state directory claimed and did not answer: to be called when what became of it
    /// is on record. Until then no other server begins it. Gives how many claims there were.
    pub async fn release_earlier_claims(&self) -> Result<u64> {
        // Nobody has this name, so nobody of this name lives.
        let text = "UPDATE idempotency SET node = '' WHERE node = $1 AND instance <> $2 AND status IS NULL";
        let release = sql(text).bind(self.node()).bind(self.instance());
        self.write(None, async move |writing| writing.run(release.clone()).await.map(Done::Keep)).await
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
    object: String,
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
        let claim =
            "INSERT INTO idempotency (tenant, route, key, body_hash, node, instance, begun_at, object)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (tenant, route, key) DO NOTHING";
        let claim = self.of(claim).bind(&*self.body_hash).bind(&*owner.node).bind(&*owner.instance);
        if writing.run(claim.bind(self.at).bind(&*self.object)).await? == 1 {
            return Ok(Done::Keep(Begun::New));
        }
        let row = writing.row(self.of(ONE)).await?;
        // It was there a moment ago and is not now: its owner abandoned it, and the client may try again.
        let Some(row) = row else { return Ok(Done::Undo(Begun::InFlight)) };
        let entry = Entry::read(&row)?;
        let expired = entry.left.begun_at <= self.at.before(KEPT);
        if !expired && entry.body_hash != self.body_hash {
            return Ok(Done::Undo(Begun::OtherBody));
        }
        if let (false, Some(answer)) = (expired, entry.answer.clone()) {
            return Ok(Done::Undo(Begun::Stored(answer)));
        }
        if entry.answer.is_none() && entry.another_lives(writing, owner, self.at).await? {
            return Ok(Done::Undo(Begun::InFlight));
        }
        if !expired {
            if entry.instance == owner.instance {
                return Ok(Done::Undo(Begun::Left(entry.left)));
            }
            let took = "UPDATE idempotency SET node = $4, instance = $5
                WHERE tenant = $1 AND route = $2 AND key = $3 AND instance = $6 AND status IS NULL
                RETURNING *";
            let took = self.of(took).bind(&*owner.node).bind(&*owner.instance).bind(entry.instance);
            return Ok(Done::Keep(match writing.row(took).await? {
                Some(row) => Begun::Left(Entry::read(&row)?.left),
                None => Begun::InFlight,
            }));
        }
        let took =
            "UPDATE idempotency SET body_hash = $4, node = $5, instance = $6, begun_at = $7, object = $8,
            note = NULL, status = NULL, content_type = NULL, body = NULL
            WHERE tenant = $1 AND route = $2 AND key = $3 AND instance = $9 AND begun_at = $10";
        let took = self.of(took).bind(&*self.body_hash).bind(&*owner.node).bind(&*owner.instance);
        let took = took.bind(self.at).bind(&*self.object);
        let took = writing.run(took.bind(entry.instance).bind(entry.left.begun_at)).await? == 1;
        Ok(Done::Keep(if took { Begun::New } else { Begun::InFlight }))
    }
}

impl Entry {
    /// Whether a server other than this one can still finish it. A state directory has one server at a time, so another
    /// instance of our own node is gone at once.
    async fn another_lives(&self, writing: &mut Writing, us: &Owner, at: Timestamp) -> Result<bool> {
        if self.instance == us.instance || self.node == us.node {
            return Ok(false);
        }
        // No clock decides where there is a lease. Whoever has it puts on record what became of the claim: the server itself
        // or, started again, its recovery, which then gives the claim away; else whoever took over, who ends the lease last.
        let lease = sql("SELECT instance FROM leases WHERE node = $1").bind(&*self.node);
        match writing.row(lease).await? {
            Some(_) => Ok(true),
            None => self.was_heard_of(writing, at).await,
        }
    }

    /// Whether its server said lately that it lives, by the clocks of both.
    async fn was_heard_of(&self, writing: &mut Writing, at: Timestamp) -> Result<bool> {
        let seen = sql("SELECT seen_at FROM instances WHERE node = $1 AND instance = $2");
        let row = writing.row(seen.bind(&*self.node).bind(&*self.instance)).await?;
        Ok(row
            .map(|row| row.get::<Timestamp>("seen_at"))
            .transpose()?
            .is_some_and(|seen| seen > at.before(GONE)))
    }
}
