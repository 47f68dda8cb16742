//! Operators: who they are and what they may do.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::FutureExt;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::base::error::Error;
use crate::base::keys::{self, KeyHash};
use crate::base::quiet::Quiet;
use crate::base::session::Sessions;
use crate::base::token::MasterKeys;
use crate::house::people::Name;
use crate::store::db::operators::OperatorRow;
use crate::store::db::pool::Pool;
use crate::store::{Stores, db};

const KEY_PREFIX: &str = "zto_";
/// A removed operator is refused after this time.
const FRESH: Duration = Duration::from_secs(1);
/// How long an operator stays signed in.
const SESSION: TimeDelta = TimeDelta::hours(12);
/// While the database is away, operators are known for this long.
const LONGEST_KNOWN: Duration = Duration::from_secs(60);
/// What the audit log calls someone with the configured token.
const WITH_TOKEN: &str = "ZTICKET_ADMIN_TOKEN";
const NO_SUCH_KEY: Error =
    Error::Unauthorized("There is no such operator. Send the key of an operator as Authorization: Bearer.");

/// What an operator may do. Each may also do what those before it may, but the door is apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// See everything
    Viewer,
    /// Pause, resume and close sales, change their settings, end places, cancel tickets
    Operator,
    /// Set up and change concerts
    Admin,
    /// Check in tickets at the door, and nothing else
    Door,
}

impl Role {
    const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Admin, Self::Door];

    pub fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Door => "door",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }

    fn includes(self, needed: Self) -> bool {
        let rank = |role| match role {
            Self::Door => None,
            Self::Viewer => Some(1),
            Self::Operator => Some(2),
            Self::Admin => Some(3),
        };
        self == needed || matches!((rank(self), rank(needed)), (Some(own), Some(needed)) if own >= needed)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Someone who runs sales.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    pub name: String,
    pub role: Role,
}

impl Operator {
    /// Refuses an operator whose role does not include the needed one.
    pub fn check(&self, needed: Role) -> Result<(), Error> {
        if self.role.includes(needed) {
            return Ok(());
        }
        Err(Error::Forbidden(needed.needed()))
    }
}

impl Role {
    /// What somebody without it reads.
    pub fn needed(self) -> &'static str {
        match self {
            Self::Viewer => "This takes the role viewer, operator or admin.",
            Self::Operator => "This takes the role operator or admin.",
            Self::Admin => "This takes the role admin.",
            Self::Door => "This takes the role door.",
        }
    }
}

/// Somebody who guesses would fill the log.
static WRONG_KEYS: Quiet<()> = Quiet::new();

/// The operators a server knows: few, and read again at most once a second, so that made-up keys cost no query.
pub struct Operators {
    stores: Arc<Stores>,
    sessions: Sessions,
    with_token: Option<KeyHash>,
    known: Mutex<Known>,
}

/// The list as it was last read, and when reading it was last tried.
#[derive(Default)]
struct Known {
    tried: Option<Instant>,
    read: Option<(Instant, Arc<List>)>,
}

type List = HashMap<KeyHash, Operator>;

impl Operators {
    /// `token`: whoever has it is an admin.
    pub fn new(stores: Arc<Stores>, master: &MasterKeys, token: Option<&str>) -> Self {
        Self {
            stores,
            sessions: Sessions::of_operators(master),
            with_token: token.map(keys::hash),
            known: Mutex::default(),
        }
    }

    /// The operator with this key.
    pub async fn by_key(&self, key: &str) -> Result<Operator, Error> {
        let hash = keys::hash(key);
        let possible = self.with_token == Some(hash) || keys::can_be_key(KEY_PREFIX, key);
        let operator = if possible { self.by_hash(hash).await? } else { None };
        if operator.is_none()
            && let Some(left_out) = WRONG_KEYS.may_write(())
        {
            // Not a warning: a stranger could push real ones out of the console.
            tracing::info!(left_out, "somebody tried a wrong operator key");
        }
        operator.ok_or(NO_SUCH_KEY)
    }

    async fn by_hash(&self, hash: KeyHash) -> Result<Option<Operator>, Error> {
        if self.with_token == Some(hash) {
            return Ok(Some(Operator { name: WITH_TOKEN.to_owned(), role: Role::Admin }));
        }
        Ok(self.list().await?.get(&hash).cloned())
    }

    /// Signs a browser in. Returns what it keeps.
    pub async fn sign_in(&self, key: &str) -> Result<String, Error> {
        self.by_key(key).await?;
        let ((session, hash), key_hash) = (self.sessions.make()?, keys::hash(key));
        let expires_at = Utc::now() + SESSION;
        self.stores
            .query(move |conn| {
                async move { db::operators::begin_session(conn, &hash, &key_hash, expires_at).await }.boxed()
            })
            .await?;
        Ok(session)
    }

    /// The operator who is signed in with this session. It ends with the key it was begun with.
    pub async fn by_session(&self, session: &str) -> Result<Option<Operator>, Error> {
        let Some(hash) = self.sessions.check(session) else { return Ok(None) };
        let key =
            self.stores.query(move |conn| async move { db::operators::session(conn, &hash).await }.boxed()).await?;
        match key.and_then(|key| key.try_into().ok()) {
            Some(key) => self.by_hash(key).await,
            None => Ok(None),
        }
    }

    pub async fn sign_out(&self, session: &str) -> Result<(), Error> {
        let Some(hash) = self.sessions.check(session) else { return Ok(()) };
        self.stores.query(move |conn| async move { db::operators::end_session(conn, &hash).await }.boxed()).await
    }

    async fn list(&self) -> Result<Arc<List>, Error> {
        let mut known = self.known.lock().await;
        let mut failure = Error::Stale;
        // After a failure too: whoever sends made-up keys must not make operators wait for a database that is away.
        if known.tried.is_none_or(|tried| tried.elapsed() >= FRESH) {
            let asked = Instant::now();
            let rows = self.stores.query(|conn| db::operators::all(conn).boxed()).await;
            known.tried = Some(Instant::now());
            match rows {
                Ok(rows) => known.read = Some((asked, Arc::new(rows.into_iter().filter_map(operator).collect()))),
                Err(error) => failure = error,
            }
        }
        let recent = known.read.as_ref().filter(|(read, _)| read.elapsed() < LONGEST_KNOWN);
        recent.map(|(_, list)| list.clone()).ok_or(failure)
    }
}

fn operator(row: OperatorRow) -> Option<(KeyHash, Operator)> {
    Some((row.key_hash.try_into().ok()?, Operator { name: row.name, role: Role::from_word(&row.role)? }))
}

/// Adds an operator. The key is shown here and never again.
pub async fn add(pool: &Pool, name: &str, role: Role) -> Result<String, Error> {
    let (name, key) = (Name::parse(name)?, keys::make(KEY_PREFIX)?);
    if !db::operators::add(&mut pool.get().await?, name.as_str(), role.word(), &keys::hash(&key)).await? {
        return Err(Error::InvalidRequest(format!("There is an operator {:?} already.", name.as_str())));
    }
    Ok(key)
}

/// Removes an operator. Servers refuse the key within two seconds.
pub async fn remove(pool: &Pool, name: &str) -> Result<(), Error> {
    if db::operators::remove(&mut pool.get().await?, name).await? {
        return Ok(());
    }
    Err(Error::InvalidRequest(format!("There is no operator {name:?}.")))
}

/// All operators, by name: who, role, since when.
pub async fn list(pool: &Pool) -> Result<Vec<(String, String, DateTime<Utc>)>, Error> {
    let rows = db::operators::all(&mut pool.get().await?).await?;
    Ok(rows.into_iter().map(|row| (row.name, row.role, row.created_at)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_includes_those_before_it_and_the_door_is_apart() {
        use Role::{Admin, Door, Operator as Acting, Viewer};
        for (own, may) in [
            (Viewer, vec![Viewer]),
            (Acting, vec![Viewer, Acting]),
            (Admin, vec![Viewer, Acting, Admin]),
            (Door, vec![Door]),
        ] {
            for needed in Role::ALL {
                let operator = Operator { name: "Kim".to_owned(), role: own };
                assert_eq!(operator.check(needed).is_ok(), may.contains(&needed), "{own} for {needed}");
            }
            assert_eq!(Role::from_word(own.word()), Some(own));
        }
    }
}
