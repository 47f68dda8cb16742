//! How people prove who they are: the keys of their programs, and the sessions of their browsers. Only hashes are kept.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use tracing::instrument;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::PersonId;
use crate::base::keys::KeyHash;
use crate::store::db::pool::Conn;
use crate::store::db::schema::{api_keys, person_sessions, users};

/// Sessions that are over and deleted in one statement.
const FORGOTTEN_TOGETHER: i64 = 1000;

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = api_keys)]
pub struct KeyRow {
    pub id: Uuid,
    pub name: String,
    pub created_at: DateTime<Utc>,
}

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = person_sessions)]
pub struct SessionRow {
    pub id: Uuid,
    pub hash: Vec<u8>,
    pub browser: String,
    pub created_at: DateTime<Utc>,
    pub seen_at: DateTime<Utc>,
}

/// The people whose keys have these hashes.
#[instrument(level = "debug", skip_all)]
pub async fn people_by_keys(conn: &mut Conn, hashes: &[&[u8]]) -> Result<Vec<(Vec<u8>, Uuid)>, Error> {
    let found = api_keys::table.filter(api_keys::hash.eq_any(hashes));
    Ok(found.select((api_keys::hash, api_keys::user_id)).load(conn).await?)
}

/// Oldest first.
#[instrument(level = "debug", skip_all)]
pub async fn keys(conn: &mut Conn, person: PersonId) -> Result<Vec<KeyRow>, Error> {
    let keys = api_keys::table.filter(api_keys::user_id.eq(person.0)).order((api_keys::created_at, api_keys::id));
    Ok(keys.select(KeyRow::as_select()).load(conn).await?)
}

#[instrument(level = "debug", skip_all)]
pub async fn add_key(conn: &mut Conn, person: PersonId, name: &str, hash: &KeyHash) -> Result<KeyRow, Error> {
    let values = (
        api_keys::id.eq(Uuid::now_v7()),
        api_keys::user_id.eq(person.0),
        api_keys::name.eq(name),
        api_keys::hash.eq(hash.as_slice()),
    );
    let added = diesel::insert_into(api_keys::table).values(values).returning(KeyRow::as_returning());
    Ok(added.get_result(conn).await?)
}

/// Returns its hash. `None`: the person has no such key.
#[instrument(level = "debug", skip_all)]
pub async fn revoke_key(conn: &mut Conn, person: PersonId, key: Uuid) -> Result<Option<Vec<u8>>, Error> {
    let own = api_keys::table.filter(api_keys::id.eq(key).and(api_keys::user_id.eq(person.0)));
    Ok(diesel::delete(own).returning(api_keys::hash).get_result(conn).await.optional()?)
}

/// How many keys a person has. Until the transaction ends, nobody adds one.
#[instrument(level = "debug", skip_all)]
pub async fn count_keys_alone(conn: &mut Conn, person: PersonId) -> Result<i64, Error> {
    lock(conn, person).await?;
    Ok(api_keys::table.filter(api_keys::user_id.eq(person.0)).count().get_result(conn).await?)
}

#[instrument(level = "debug", skip_all)]
async fn lock(conn: &mut Conn, person: PersonId) -> Result<(), Error> {
    let _: Option<Uuid> =
        users::table.find(person.0).select(users::id).for_no_key_update().first(conn).await.optional()?;
    Ok(())
}

/// A browser that signs in.
pub struct NewSession<'a> {
    pub person: PersonId,
    pub hash: &'a KeyHash,
    /// With which it was begun.
    pub key: Option<&'a KeyHash>,
    pub browser: &'a str,
    pub ends: DateTime<Utc>,
}

/// Signs a browser in, in a transaction. Sessions that are over are forgotten by the way, and of too many of one person the
/// oldest. `false`: the key was revoked.
#[instrument(level = "debug", skip_all)]
pub async fn begin_session(conn: &mut Conn, new: &NewSession<'_>, most: i64) -> Result<bool, Error> {
    lock(conn, new.person).await?;
    let key: Option<Uuid> = match new.key {
        Some(hash) => {
            let key = api_keys::table.filter(api_keys::hash.eq(hash.as_slice())).select(api_keys::id).for_key_share();
            match key.first(conn).await.optional()? {
                Some(key) => Some(key),
                None => return Ok(false),
            }
        }
        None => None,
    };
    let over = person_sessions::table
        .filter(person_sessions::expires_at.lt(diesel::dsl::now))
        .select(person_sessions::hash)
        .limit(FORGOTTEN_TOGETHER)
        .for_update()
        .skip_locked();
    let mut gone: Vec<Vec<u8>> = over.load(conn).await?;
    let too_many = person_sessions::table
        .filter(person_sessions::user_id.eq(new.person.0))
        .order(person_sessions::seen_at.desc())
        .select(person_sessions::hash)
        .offset(most - 1);
    gone.extend(too_many.load::<Vec<u8>>(conn).await?);
    diesel::delete(person_sessions::table.filter(person_sessions::hash.eq_any(gone))).execute(conn).await?;
    let values = (
        person_sessions::hash.eq(new.hash.as_slice()),
        person_sessions::user_id.eq(new.person.0),
        person_sessions::key_id.eq(key),
        person_sessions::browser.eq(new.browser),
        person_sessions::expires_at.eq(new.ends),
    );
    diesel::insert_into(person_sessions::table).values(values).execute(conn).await?;
    Ok(true)
}

/// Hash of the session, who is signed in with it, and when it was renewed.
type SignedIn = (Vec<u8>, Uuid, DateTime<Utc>);

/// Who is signed in with these sessions, and when each was renewed.
#[instrument(level = "debug", skip_all)]
pub async fn people_by_sessions(conn: &mut Conn, hashes: &[&[u8]]) -> Result<Vec<SignedIn>, Error> {
    let alive = person_sessions::table
        .filter(person_sessions::hash.eq_any(hashes).and(person_sessions::expires_at.gt(diesel::dsl::now)));
    let columns = (person_sessions::hash, person_sessions::user_id, person_sessions::seen_at);
    Ok(alive.select(columns).load(conn).await?)
}

/// Lets these sessions last until then.
#[instrument(level = "debug", skip_all)]
pub async fn renew_sessions(conn: &mut Conn, hashes: &[&[u8]], expires_at: DateTime<Utc>) -> Result<(), Error> {
    diesel::update(person_sessions::table.filter(person_sessions::hash.eq_any(hashes)))
        .set((person_sessions::seen_at.eq(diesel::dsl::now), person_sessions::expires_at.eq(expires_at)))
        .execute(conn)
        .await?;
    Ok(())
}

/// Those that are not over, newest first.
#[instrument(level = "debug", skip_all)]
pub async fn sessions(conn: &mut Conn, person: PersonId) -> Result<Vec<SessionRow>, Error> {
    let alive = person_sessions::table
        .filter(person_sessions::user_id.eq(person.0).and(person_sessions::expires_at.gt(diesel::dsl::now)));
    Ok(alive.order(person_sessions::created_at.desc()).select(SessionRow::as_select()).load(conn).await?)
}

#[instrument(level = "debug", skip_all)]
pub async fn end_session(conn: &mut Conn, hash: &KeyHash) -> Result<(), Error> {
    diesel::delete(person_sessions::table.find(hash.as_slice())).execute(conn).await?;
    Ok(())
}

/// Returns its hash. `None`: the person has no such session.
#[instrument(level = "debug", skip_all)]
pub async fn end_session_of(conn: &mut Conn, person: PersonId, session: Uuid) -> Result<Option<Vec<u8>>, Error> {
    let own = person_sessions::table.filter(person_sessions::id.eq(session).and(person_sessions::user_id.eq(person.0)));
    Ok(diesel::delete(own).returning(person_sessions::hash).get_result(conn).await.optional()?)
}
