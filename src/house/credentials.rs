//! How people prove who they are: the API keys of their programs, and the sessions of their browsers. A server remembers
//! for a second what it looked up, so every server refuses what was revoked within two.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use diesel_async::AsyncConnection;
use futures_util::FutureExt;
use quick_cache::sync::Cache;
use serde::Serialize;
use utoipa::ToSchema;

use crate::base::error::Error;
use crate::base::ids::{KeyId, PersonId, SessionId};
use crate::base::keys::{self, KeyHash};
use crate::base::session::Sessions;
use crate::base::token::MasterKeys;
use crate::house::people::Name;
use crate::store::db::credentials::{KeyRow, NewSession, SessionRow};
use crate::store::db::pool::{Conn, Pool};
use crate::store::gather::{Batch, Capacity, Gather};
use crate::store::{Stores, db};

const LOOKING_UP: Capacity = Capacity { waiting: 10_000, together: 200, at_once: 1 };
/// What a server looked up lately.
const REMEMBERED: usize = 100_000;
const FRESH: Duration = Duration::from_secs(1);
/// How long a browser stays signed in without being used.
pub const SESSION: TimeDelta = TimeDelta::days(30);
/// A session in use is made to last longer this often.
const RENEWED_EVERY: TimeDelta = TimeDelta::days(1);
const MOST_KEYS: i64 = 20;
const MOST_SESSIONS: i64 = 50;
const LONGEST_BROWSER: usize = 200;
const NO_SUCH_KEY: Error = Error::Unauthorized("There is no such API key, or it was revoked.");

pub struct Credentials {
    stores: Arc<Stores>,
    sessions: Sessions,
    finder: Gather<Ask, Option<Found>>,
    known: Cache<KeyHash, (Instant, PersonId)>,
}

#[derive(Debug, Clone, Copy)]
struct Ask {
    hash: KeyHash,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Key,
    Session,
}

/// Whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub person: PersonId,
    /// Whether a session was just made to last longer, so that the browser has to keep it longer too.
    pub renewed: bool,
}

/// An API key, without the key.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    pub key_id: KeyId,
    pub name: String,
    pub created_at: DateTime<Utc>,
}

/// A new API key.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewKey {
    pub key_id: KeyId,
    pub name: String,
    /// Shown this once.
    #[schema(example = "zt_2578…19ee")]
    pub api_key: String,
}

/// A browser in which a person is signed in.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub session_id: SessionId,
    /// What the browser says it is.
    pub browser: String,
    pub created_at: DateTime<Utc>,
    /// About when it was last used, to the day.
    pub seen_at: DateTime<Utc>,
    /// Whether it is the one that asks.
    pub current: bool,
}

impl Credentials {
    /// Starts the loop that looks up keys and sessions.
    pub fn start(stores: Arc<Stores>, master: &MasterKeys) -> Self {
        let (finder, finding) = finder(stores.db.clone());
        stores.spawn(finding);
        Self { stores, sessions: Sessions::of_people(master), finder, known: Cache::new(REMEMBERED) }
    }

    /// The person with this API key. What cannot be a key is not looked up.
    pub async fn by_key(&self, key: &str) -> Result<PersonId, Error> {
        if !keys::can_be_key(keys::OF_PEOPLE, key) {
            return Err(NO_SUCH_KEY);
        }
        let found = self.find(Ask { hash: keys::hash(key), what: What::Key }).await?;
        found.map(|found| found.person).ok_or(NO_SUCH_KEY)
    }

    /// Who is signed in with this session. What is none of ours is not looked up.
    pub async fn by_session(&self, session: &str) -> Result<Option<Found>, Error> {
        match self.sessions.check(session) {
            Some(hash) => self.find(Ask { hash, what: What::Session }).await,
            None => Ok(None),
        }
    }

    async fn find(&self, ask: Ask) -> Result<Option<Found>, Error> {
        if let Some((_, person)) = self.known.get(&ask.hash).filter(|(looked_up, _)| looked_up.elapsed() < FRESH) {
            return Ok(Some(Found { person, renewed: false }));
        }
        // Before the question: an answer is as old as the question.
        let asked = Instant::now();
        let found = self.finder.ask(ask).await?;
        match found {
            Some(Found { person, .. }) => self.known.insert(ask.hash, (asked, person)),
            None => drop(self.known.remove(&ask.hash)),
        }
        Ok(found)
    }

    /// Signs a browser in. Returns what it keeps. A session that was begun with a key ends with it.
    pub async fn begin_session(&self, person: PersonId, key: Option<&str>, browser: &str) -> Result<String, Error> {
        let (session, hash) = self.sessions.make()?;
        let key = key.map(keys::hash);
        let browser: String = browser.chars().filter(|letter| !letter.is_control()).take(LONGEST_BROWSER).collect();
        let ends = Utc::now() + SESSION;
        let begun = self.stores.query(move |conn| {
            async move {
                conn.transaction(async |conn| {
                    let new = NewSession { person, hash: &hash, key: key.as_ref(), browser: &browser, ends };
                    db::credentials::begin_session(conn, &new, MOST_SESSIONS).await
                })
                .await
            }
            .boxed()
        });
        if !begun.await? {
            return Err(NO_SUCH_KEY);
        }
        Ok(session)
    }

    pub async fn end_session(&self, session: &str) -> Result<(), Error> {
        let Some(hash) = self.sessions.check(session) else { return Ok(()) };
        self.stores.query(move |conn| async move { db::credentials::end_session(conn, &hash).await }.boxed()).await?;
        self.known.remove(&hash);
        Ok(())
    }

    /// The browsers in which a person is signed in, newest first. `current`: the session that asks.
    pub async fn sessions_of(&self, person: PersonId, current: Option<&str>) -> Result<Vec<Session>, Error> {
        let current = current.and_then(|session| self.sessions.check(session));
        let rows = self.stores.query(move |conn| db::credentials::sessions(conn, person).boxed()).await?;
        let session = |SessionRow { id, hash, browser, created_at, seen_at }: SessionRow| Session {
            session_id: SessionId(id),
            browser,
            created_at,
            seen_at,
            current: current.is_some_and(|current| current.as_slice() == hash),
        };
        Ok(rows.into_iter().map(session).collect())
    }

    /// Signs another browser of the same person out.
    pub async fn end_session_of(&self, person: PersonId, session: SessionId) -> Result<(), Error> {
        let ended =
            self.stores.query(move |conn| db::credentials::end_session_of(conn, person, session.0).boxed()).await?;
        self.forget(ended)
    }

    pub async fn keys_of(&self, person: PersonId) -> Result<Vec<Key>, Error> {
        let rows = self.stores.query(move |conn| db::credentials::keys(conn, person).boxed()).await?;
        let key = |KeyRow { id, name, created_at }: KeyRow| Key { key_id: KeyId(id), name, created_at };
        Ok(rows.into_iter().map(key).collect())
    }

    /// Makes an API key. It is shown here and never again: only its hash is kept.
    pub async fn make_key(&self, person: PersonId, name: &Name) -> Result<NewKey, Error> {
        let key = keys::make(keys::OF_PEOPLE)?;
        let (hash, name) = (keys::hash(&key), name.as_str().to_owned());
        let added = self.stores.query(move |conn| {
            async move {
                conn.transaction(async |conn| {
                    if db::credentials::count_keys_alone(conn, person).await? >= MOST_KEYS {
                        return Err(too_many_keys());
                    }
                    db::credentials::add_key(conn, person, &name, &hash).await
                })
                .await
            }
            .boxed()
        });
        let row = added.await?;
        Ok(NewKey { key_id: KeyId(row.id), name: row.name, api_key: key })
    }

    /// Revokes a key. This server refuses it at once, and every other one within two seconds.
    pub async fn revoke_key(&self, person: PersonId, key: KeyId) -> Result<(), Error> {
        let revoked = self.stores.query(move |conn| db::credentials::revoke_key(conn, person, key.0).boxed()).await?;
        self.forget(revoked)
    }

    fn forget(&self, hash: Option<Vec<u8>>) -> Result<(), Error> {
        let hash: KeyHash = hash.and_then(|hash| hash.try_into().ok()).ok_or(Error::NotFound)?;
        self.known.remove(&hash);
        Ok(())
    }
}

fn too_many_keys() -> Error {
    Error::InvalidRequest(format!("You have {MOST_KEYS} keys. Revoke one of them first."))
}

/// The loop that looks up keys and sessions, many together: however many made-up ones come, sales do not wait for a
/// connection.
fn finder(pool: Pool) -> (Gather<Ask, Option<Found>>, impl Future<Output = ()>) {
    Gather::new("looking up keys and sessions", LOOKING_UP, move |batch: Batch<Ask, Option<Found>>| {
        let pool = pool.clone();
        async move {
            let asked: Vec<Ask> = batch.iter().map(|(ask, _)| *ask).collect();
            let found = async { look_up(&mut pool.get().await?, &asked).await }.await;
            for (ask, answer) in batch {
                let of_it = |found: &Vec<(Vec<u8>, Found)>| {
                    found.iter().find(|(hash, _)| *hash == ask.hash).map(|(_, found)| *found)
                };
                let _ = answer.send(found.as_ref().map(of_it).map_err(Clone::clone));
            }
        }
    })
}

async fn look_up(conn: &mut Conn, asked: &[Ask]) -> Result<Vec<(Vec<u8>, Found)>, Error> {
    let hashes = |what: What| -> Vec<&[u8]> {
        asked.iter().filter(|ask| ask.what == what).map(|ask| ask.hash.as_slice()).collect()
    };
    let (keys, sessions) = (hashes(What::Key), hashes(What::Session));
    let mut found = Vec::with_capacity(asked.len());
    if !keys.is_empty() {
        let people = db::credentials::people_by_keys(conn, &keys).await?;
        found.extend(
            people.into_iter().map(|(hash, person)| (hash, Found { person: PersonId(person), renewed: false })),
        );
    }
    if !sessions.is_empty() {
        let now = Utc::now();
        let people = db::credentials::people_by_sessions(conn, &sessions).await?;
        let old: Vec<&[u8]> = people
            .iter()
            .filter(|(_, _, seen_at)| *seen_at < now - RENEWED_EVERY)
            .map(|(hash, ..)| hash.as_slice())
            .collect();
        let renewed = match old.as_slice() {
            [] => Ok(()),
            old => db::credentials::renew_sessions(conn, old, now + SESSION).await,
        };
        if let Err(error) = &renewed {
            // They are still good, and the next one who asks tries again.
            tracing::warn!(%error, "sessions in use are not made to last longer");
        }
        found.extend(people.into_iter().map(|(hash, person, seen_at)| {
            let renewed = renewed.is_ok() && seen_at < now - RENEWED_EVERY;
            (hash, Found { person: PersonId(person), renewed })
        }));
    }
    Ok(found)
}
