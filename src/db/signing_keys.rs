//! Master keys of the queue tokens.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::db::Conn;
use crate::db::schema::signing_keys;
use crate::error::Error;
use crate::token::MasterKeys;

/// The newest two keys. Where there is none, one is made; of servers that make one together the first one's counts.
pub async fn load_or_create(conn: &mut Conn) -> Result<MasterKeys, Error> {
    if let Some(keys) = load(conn).await? {
        return Ok(keys);
    }
    let mut secret = [0_u8; 32];
    getrandom::fill(&mut secret).map_err(|error| Error::Internal(error.to_string()))?;
    diesel::insert_into(signing_keys::table)
        .values((signing_keys::id.eq(1), signing_keys::secret.eq(secret.as_slice())))
        .on_conflict_do_nothing()
        .execute(conn)
        .await?;
    load(conn).await?.ok_or_else(|| Error::Internal("the signing key was not stored".to_owned()))
}

async fn load(conn: &mut Conn) -> Result<Option<MasterKeys>, Error> {
    let secrets: Vec<Vec<u8>> =
        signing_keys::table.select(signing_keys::secret).order(signing_keys::id.desc()).limit(2).load(conn).await?;
    let mut keys = secrets.into_iter().filter_map(|secret| secret.try_into().ok());
    Ok(keys.next().map(|current| MasterKeys { current, previous: keys.next() }))
}
