//! API keys: made, read, hashed, listed, ended. Needs a store and the pepper, no server.
//!
//! Only a keyed hash of a key is stored. The pepper is not in the store, so that who reads the database can neither
//! use a key nor make one.

use std::time::Duration;

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD, HEXLOWER};
use ring::hmac;
use sandstorm_provider::{Error, Result};
use sandstorm_store::{Audit, Decision, KeyRow, Store, StoreError, TenantRow};
use sandstorm_types::{ErrorKind, TenantId, Timestamp};

use super::failure::{conflict, invalid, not_found, stored};
use super::sandbox_tokens::is_token;
use super::{KeyForm, KeyView, NewKey, NewTenant, Pepper, Scopes};

/// No key of any form is longer.
const LONGEST: usize = 128;
const NATIVE: &str = "ss_";
const E2B: &str = "e2b_";
/// Characters of a new key's public id, and the most that are taken.
const ID: usize = 16;
const LONGEST_ID: usize = 32;
const SHORTEST_ID: usize = 12;
/// Characters of the secret part: 32 bytes in base64url.
const SECRET: usize = 43;
const E2B_DIGITS: usize = 40;
const LONGEST_NAME: usize = 200;

/// The keys of a store.
#[derive(Debug, Clone)]
pub struct Keys {
    store: Store,
    pepper: Pepper,
}

/// Who makes or ends keys, for the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The public id of a key, or a name in angle brackets.
    pub principal: String,
    pub request_id: String,
}

impl Actor {
    /// Whoever has the state directory in hand and uses the command line.
    pub fn command_line() -> Self {
        Self { principal: "<cli>".to_owned(), request_id: String::new() }
    }
}

/// How to find the row of a presented key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup<'a> {
    Id(&'a str),
    Hash,
}

impl Keys {
    pub fn new(store: Store, pepper: Pepper) -> Self {
        Self { store, pepper }
    }

    /// Makes a key; the secret is given once and never stored.
    pub async fn create(&self, by: &Actor, new: NewKey) -> Result<(KeyView, String)> {
        check_name(&new.name)?;
        if new.scopes.0.is_empty() {
            return Err(invalid("a key without scopes allows nothing"));
        }
        if stored(self.store.tenant(new.tenant).await)?.is_none() {
            return Err(not_found("tenant"));
        }
        let id = BASE32_NOPAD.encode(&random::<{ ID * 5 / 8 }>()).to_lowercase();
        let key = match new.form {
            KeyForm::Native => format!("{NATIVE}{id}_{}", BASE64URL_NOPAD.encode(&random::<32>())),
            KeyForm::E2b => format!("{E2B}{}", HEXLOWER.encode(&random::<{ E2B_DIGITS / 2 }>())),
        };
        let row = KeyRow {
            id,
            tenant: new.tenant,
            name: new.name,
            hash: self.hash(&key).to_vec(),
            scopes: new.scopes.to_string(),
            form: new.form.as_str().to_owned(),
            created_at: Timestamp::now(),
            expires_at: new.expires_at,
            revoked_at: None,
            last_used_at: None,
        };
        stored(self.store.create_key(&row, &audit(by, row.tenant, "key.create", &row.id)).await)?;
        Ok((view(row)?, key))
    }

    /// Oldest first.
    pub async fn list(&self, tenant: Option<TenantId>) -> Result<Vec<KeyView>> {
        stored(self.store.keys(tenant).await)?.into_iter().map(view).collect()
    }

    /// Ends a key for good. Ending it again changes nothing.
    pub async fn revoke(&self, by: &Actor, id: &str) -> Result<KeyView> {
        let row = self.row(id).await?;
        let audit = audit(by, row.tenant, "key.revoke", &row.id);
        let row = stored(self.store.revoke_key(id, Timestamp::now(), &audit).await)?;
        view(row.ok_or_else(|| not_found("key"))?)
    }

    /// A new secret for the same name and scopes; the old one stays good for `overlap`.
    pub async fn rotate(&self, by: &Actor, id: &str, overlap: Duration) -> Result<(KeyView, String)> {
        let old = view(self.row(id).await?)?;
        if !old.is_good(Timestamp::now()) {
            return Err(conflict("the key has ended and cannot be replaced"));
        }
        let form = self.row(id).await?.form.parse()?;
        let KeyView { tenant, name, scopes, expires_at, .. } = old;
        let made = self.create(by, NewKey { tenant, name, scopes, form, expires_at }).await?;
        let audit = audit(by, tenant, "key.rotate", id);
        stored(self.store.expire_key(id, Timestamp::now().after(overlap), &audit).await)?;
        Ok(made)
    }

    /// Makes a tenant.
    pub async fn create_tenant(&self, by: &Actor, new: NewTenant) -> Result<TenantRow> {
        check_name(&new.name)?;
        let quota = new
            .quota
            .map(serde_json::to_value)
            .transpose()
            .map_err(|e| Error::new(ErrorKind::Internal, "a quota has no JSON form").with_source(e))?;
        let row = TenantRow { id: TenantId::random(), name: new.name, quota, created_at: Timestamp::now() };
        let audit = audit(by, row.id, "tenant.create", &row.id.to_string());
        match self.store.create_tenant(&row, &audit).await {
            // Ids are random, so it is the name.
            Err(StoreError::Conflict { .. }) => Err(conflict(format!(
                "there is a tenant {:?} already; choose another name, or use that one: `sandstorm tenants list` shows its id",
                row.name
            ))),
            made => stored(made).map(|()| row),
        }
    }

    /// Oldest first.
    pub async fn tenants(&self) -> Result<Vec<TenantRow>> {
        stored(self.store.tenants().await)
    }

    async fn row(&self, id: &str) -> Result<KeyRow> {
        if id.len() > LONGEST_ID {
            return Err(not_found("key"));
        }
        stored(self.store.key(id).await)?.ok_or_else(|| not_found("key"))
    }

    /// The row that a presented key belongs to, if it is exactly that key. Every failure does the same work: one hash,
    /// one lookup, one comparison.
    pub(super) async fn find(&self, presented: &str, hash: &[u8; 32]) -> Result<Option<KeyRow>> {
        // An id that cannot exist, looked for so that bad form costs as much as a wrong secret.
        let lookup = lookup(presented).unwrap_or(Lookup::Id("-"));
        let row = match lookup {
            Lookup::Id(id) => stored(self.store.key(id).await)?,
            Lookup::Hash => stored(self.store.key_by_hash(hash).await)?,
        };
        let expected = row.as_ref().map_or(&[0_u8; 32][..], |row| row.hash.as_slice());
        let same = subtle::ConstantTimeEq::ct_eq(expected, hash.as_slice());
        Ok(row.filter(|_| bool::from(same)))
    }

    /// The keyed hash of what was presented; of its beginning only when it is longer than any key.
    pub(super) fn hash(&self, presented: &str) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.pepper.0);
        let mut mac = hmac::Context::with_key(&key);
        mac.update(b"sandstorm api key\0");
        mac.update(&presented.as_bytes()[..presented.len().min(LONGEST)]);
        let mut hash = [0; 32];
        hash.copy_from_slice(mac.sign().as_ref());
        hash
    }

    pub(super) async fn by_id(&self, id: &str) -> Result<Option<KeyRow>> {
        stored(self.store.key(id).await)
    }
}

/// Whether a word has the form of a key or of a sandbox's token, of whatever server: such a word is a secret, whoever it
/// belongs to.
pub fn is_credential(word: &str) -> bool {
    lookup(word).is_some() || is_token(word)
}

/// How to find a key's row, or nothing when it has no form of ours.
pub(super) fn lookup(presented: &str) -> Option<Lookup<'_>> {
    if presented.len() > LONGEST {
        return None;
    }
    if let Some(rest) = presented.strip_prefix(NATIVE) {
        let (id, secret) = rest.split_once('_')?;
        let in_id = |byte: u8| byte.is_ascii_lowercase() || (b'2'..=b'7').contains(&byte);
        let in_secret = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let fits = (SHORTEST_ID..=LONGEST_ID).contains(&id.len())
            && id.bytes().all(in_id)
            && secret.len() == SECRET
            && secret.bytes().all(in_secret);
        return fits.then_some(Lookup::Id(id));
    }
    let digits = presented.strip_prefix(E2B)?;
    let hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (digits.len() == E2B_DIGITS && digits.bytes().all(hexadecimal)).then_some(Lookup::Hash)
}

pub(super) fn view(row: KeyRow) -> Result<KeyView> {
    let scopes: Scopes = row.scopes.parse()?;
    let KeyRow { id, tenant, name, created_at, expires_at, revoked_at, last_used_at, .. } = row;
    Ok(KeyView { id, tenant, name, scopes, created_at, expires_at, revoked_at, last_used_at })
}

pub(super) fn check_name(name: &str) -> Result<()> {
    match name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        true => Err(invalid("a name has 1 to 200 bytes and no control characters")),
        false => Ok(()),
    }
}

fn audit(by: &Actor, tenant: TenantId, action: &str, object: &str) -> Audit {
    Audit {
        tenant,
        principal: by.principal.clone(),
        action: action.to_owned(),
        object: object.to_owned(),
        decision: Decision::Allowed,
        request_id: by.request_id.clone(),
        detail: None,
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("getrandom(2) cannot fail once the kernel's pool is seeded");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_forms_are_read() {
        let secret = "A-_9".repeat(10) + "abc";
        let native = format!("ss_abcdefghijkl_{secret}");
        assert_eq!(lookup(&native), Some(Lookup::Id("abcdefghijkl")));
        let e2b = format!("e2b_{}", "0a".repeat(20));
        assert_eq!(lookup(&e2b), Some(Lookup::Hash));
        for bad in [
            "",
            "ss_",
            "ss__",
            &native[..native.len() - 1],
            &format!("{native}a"),
            &native.to_uppercase(),
            &native.replace("abcdefghijkl", "abcdefghijk"),
            &native.replace("abcdefghijkl", "abcdefghijk1"),
            &format!(" {native}"),
            &format!("{native}\n"),
            &e2b.to_uppercase(),
            &e2b.replace("0a", "0A"),
            &e2b[..e2b.len() - 1],
            &format!("{e2b}0"),
            &"s".repeat(1 << 20),
        ] {
            assert_eq!(lookup(bad), None, "{}", &bad[..bad.len().min(80)]);
        }
    }
}
