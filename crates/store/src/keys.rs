//! API keys: their hashes, never the keys.

use std::fmt;

use sandstorm_types::{TenantId, Timestamp};

use crate::audit::{from_hex, hex};
use crate::database::{Row, sql};
use crate::writing::Done;
use crate::{Audit, Result, Store, StoreError};

#[derive(Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// The public part.
    pub id: String,
    pub tenant: TenantId,
    pub name: String,
    /// Keyed hash of the secret part.
    pub hash: Vec<u8>,
    pub scopes: String,
    pub form: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

impl fmt::Debug for KeyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRow").field("id", &self.id).field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

impl KeyRow {
    fn read(row: &Row) -> Result<Self> {
        let hash: String = row.get("hash")?;
        Ok(Self {
            id: row.get("id")?,
            tenant: row.get("tenant")?,
            name: row.get("name")?,
            hash: from_hex(&hash)
                .ok_or_else(|| StoreError::corrupt("the hash of a key is not hexadecimal"))?,
            scopes: row.get("scopes")?,
            form: row.get("form")?,
            created_at: row.get("created_at")?,
            expires_at: row.optional("expires_at")?,
            revoked_at: row.optional("revoked_at")?,
            last_used_at: row.optional("last_used_at")?,
        })
    }
}

impl Store {
    /// `Conflict` when the id or the hash is taken, or there is no such tenant.
    pub async fn create_key(&self, row: &KeyRow, audit: &Audit) -> Result<()> {
        let text =
            "INSERT INTO keys (id, tenant, name, hash, scopes, form, created_at, expires_at, revoked_at,
            last_used_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let insert = sql(text)
            .bind(&*row.id)
            .bind(row.tenant)
            .bind(&*row.name)
            .bind(hex(&row.hash))
            .bind(&*row.scopes)
            .bind(&*row.form)
            .bind(row.created_at)
            .bind(row.expires_at)
            .bind(row.revoked_at)
            .bind(row.last_used_at);
        let audit = audit.clone();
        self.write(None, async move |writing| {
            writing.run(insert.clone()).await?;
            writing.audit(&audit).await?;
            Ok(Done::Keep(()))
        })
        .await
    }

    /// By its public id. The one lookup without a tenant: it is what finds the tenant.
    pub async fn key(&self, id: &str) -> Result<Option<KeyRow>> {
        let row = self.database().row(sql("SELECT * FROM keys WHERE id = $1").bind(id)).await?;
        row.as_ref().map(KeyRow::read).transpose()
    }

    /// For forms that carry no id. Finds the tenant, as [`Store::key`] does.
    pub async fn key_by_hash(&self, hash: &[u8]) -> Result<Option<KeyRow>> {
        let row = self.database().row(sql("SELECT * FROM keys WHERE hash = $1").bind(hex(hash))).await?;
        row.as_ref().map(KeyRow::read).transpose()
    }

    /// Oldest first; of all tenants without one.
    pub async fn keys(&self, tenant: Option<TenantId>) -> Result<Vec<KeyRow>> {
        let query = match tenant {
            Some(tenant) => sql("SELECT * FROM keys WHERE tenant = $1 ORDER BY created_at, id").bind(tenant),
            None => sql("SELECT * FROM keys ORDER BY created_at, id"),
        };
        self.database().rows(query).await?.iter().map(KeyRow::read).collect()
    }

    /// The first revocation stands. `None` when there is no such key.
    pub async fn revoke_key(&self, id: &str, at: Timestamp, audit: &Audit) -> Result<Option<KeyRow>> {
        self.end_key(
            "UPDATE keys SET revoked_at = COALESCE(revoked_at, $2) WHERE id = $1 RETURNING *",
            id,
            at,
            audit,
        )
        .await
    }

    /// Ends the key at a moment, for rotation; never later than it would have ended anyway.
    pub async fn expire_key(&self, id: &str, at: Timestamp, audit: &Audit) -> Result<Option<KeyRow>> {
        let update = "UPDATE keys SET expires_at = CASE WHEN expires_at < $2 THEN expires_at ELSE $2 END
            WHERE id = $1 RETURNING *";
        self.end_key(update, id, at, audit).await
    }

    async fn end_key(
        &self,
        update: &'static str,
        id: &str,
        at: Timestamp,
        audit: &Audit,
    ) -> Result<Option<KeyRow>> {
        let (update, audit) = (sql(update).bind(id).bind(at), audit.clone());
        self.write(None, async move |writing| {
            let Some(row) = writing.row(update.clone()).await? else { return Ok(Done::Undo(None)) };
            writing.audit(&audit).await?;
            KeyRow::read(&row).map(|row| Done::Keep(Some(row)))
        })
        .await
    }

    /// Never moves the moment of last use back.
    pub async fn touch_keys(&self, used: &[(String, Timestamp)]) -> Result<()> {
        if used.is_empty() {
            return Ok(());
        }
        // In one order, so that two servers cannot wait for each other.
        let mut used = used.to_vec();
        used.sort();
        self.write_long(None, async move |writing| {
            for (id, at) in &used {
                let touch =
                    "UPDATE keys SET last_used_at = $2 WHERE id = $1 AND COALESCE(last_used_at, 0) < $2";
                writing.run(sql(touch).bind(&**id).bind(*at)).await?;
            }
            Ok(Done::Keep(()))
        })
        .await
    }

    /// Whether any key was ever made.
    pub async fn has_keys(&self) -> Result<bool> {
        Ok(self.database().row(sql("SELECT id FROM keys LIMIT 1")).await?.is_some())
    }
}
