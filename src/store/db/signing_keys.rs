//! Master keys of the queue tokens.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use tracing::instrument;

use crate::base::error::Error;
use crate::base::token::MasterKeys;
use crate::store::db::pool::Conn;
use crate::store::db::schema::signing_keys;

/// The newest two keys. Makes one if there is none; if several servers do so together, the first one counts.
#[instrument(level = "debug", skip_all)]
pub async fn load_or_create(conn: &mut Conn) -> Result<MasterKeys, Error> {
    if let Some(keys) = load(conn).await? {
        return Ok(keys);
    }
    let mut secret = [0_u8; 32];
    getrandom::fill(&mut secret).map_err(Error::internal)?;
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
