//! People who can pay: signing up, and their balance. Money moves only in single database statements, each of which
//! writes the ledger too.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use diesel_async::AsyncConnection;
use futures_util::FutureExt;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::{OrderId, PersonId, TicketId};
use crate::base::keys;
use crate::base::paging::{Page, PageOf};
use crate::base::token::MasterKeys;
use crate::store::db::people::{ChargeRow, MovementRow, PaymentRow, PersonRow};
use crate::store::db::pool::Pool;
use crate::store::gather::{Batch, Capacity, Gather};
use crate::store::{Stores, db};

const LONGEST_NAME: usize = 50;
/// Of one charge, in whole units of the currency.
pub const LARGEST_CHARGE: i64 = 10_000_000;
/// No charge takes a balance above this. A refund may.
const HIGHEST_BALANCE: i64 = 1_000_000_000;
const LONGEST_IDEMPOTENCY_KEY: usize = 100;
/// Charges wait here rather than for a connection: each is one statement, and those of one person take turns anyway.
const CHARGING: Capacity = Capacity { waiting: 10_000, together: 1, at_once: 4 };
/// The name of a program's first key.
const FIRST_KEY: &str = "sign-up";
const NO_SUCH_PERSON: Error = Error::Unauthorized("There is no such person any more.");

pub struct People {
    stores: Arc<Stores>,
    currency: String,
    charger: Gather<Charge, ChargeRow>,
    /// With which the keys are made of those who may have to repeat their sign-up: the newest first.
    secrets: Vec<[u8; 32]>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Person {
    #[serde(rename = "userId")]
    pub person_id: PersonId,
    pub name: String,
    /// Shown once, after signing up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    pub balance: i64,
    pub currency: String,
    pub created_at: DateTime<Utc>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Balance {
    pub balance: i64,
    pub currency: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Charged {
    pub charge_id: i64,
    pub amount: i64,
    /// After it.
    pub balance: i64,
    pub currency: String,
    pub charged_at: DateTime<Utc>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Movement {
    pub movement_id: i64,
    #[schema(pattern = "^(CHARGE|PAYMENT|REFUND)$", example = "CHARGE")]
    pub kind: String,
    pub amount: i64,
    /// After it.
    pub balance: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_id: Option<OrderId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticket_id: Option<TicketId>,
    pub moved_at: DateTime<Utc>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Payment {
    /// A payment has the number of its order.
    pub payment_id: OrderId,
    pub order_id: OrderId,
    pub amount: i64,
    pub refunded: i64,
    pub currency: String,
    pub status: PaymentStatus,
    pub paid_at: DateTime<Utc>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PaymentStatus {
    Paid,
    PartlyRefunded,
    Refunded,
}

/// What a person goes by: trimmed, not empty, printable.
#[derive(Debug, Clone)]
pub struct Name(String);

impl Name {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let name = text.trim();
        let length = name.chars().count();
        if length == 0 || length > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err(Error::InvalidRequest(format!("name is 1 to {LONGEST_NAME} letters.")));
        }
        Ok(Self(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names one charge, so that it can be repeated safely.
#[derive(Debug, Clone)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.is_empty() || text.len() > LONGEST_IDEMPOTENCY_KEY || !plain {
            return Err(Error::InvalidRequest(format!(
                "Idempotency-Key is 1 to {LONGEST_IDEMPOTENCY_KEY} letters, digits and signs, a new one for each charge."
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

/// The same from somebody whom nobody knows yet. It has to be hard to guess, because it leads to what was made with it.
#[derive(Debug, Clone)]
pub struct StrangersKey(String);

impl StrangersKey {
    /// 128 random bits at least: in base64 or, where all of it could be that, in hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let base64 = |letter: u8| letter.is_ascii_alphanumeric() || b"+/-_=".contains(&letter);
        let least = if text.bytes().all(|digit| digit.is_ascii_hexdigit()) { 32 } else { 22 };
        if (least..=LONGEST_IDEMPOTENCY_KEY).contains(&text.len()) && text.bytes().all(base64) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::InvalidRequest(
            "Idempotency-Key is 128 random bits or more here: 22 letters of base64, or 32 hexadecimal digits."
                .to_owned(),
        ))
    }
}

/// Money to add.
#[derive(Debug, Clone)]
pub struct Charge {
    person: PersonId,
    key: IdempotencyKey,
    amount: i64,
}

impl People {
    /// Starts the loop that charges.
    pub fn start(stores: Arc<Stores>, currency: String, master: &MasterKeys) -> Self {
        let (charger, charging) = charger(stores.db.clone());
        stores.spawn(charging);
        let secret = |key: &[u8; 32]| blake3::derive_key("zticket 2026 repeated sign-up", key);
        let secrets = std::iter::once(&master.current).chain(&master.previous).map(secret).collect();
        Self { stores, currency, charger, secrets }
    }

    /// Makes a person with an API key. The key is shown here and never again: only its hash is kept.
    pub async fn sign_up(&self, name: Name) -> Result<Person, Error> {
        let key = keys::make(keys::OF_PEOPLE)?;
        let row = self.create(name, &key).await?;
        Ok(self.person(row, Some(key)))
    }

    /// The same once for each of these words: again, they show the same person and key.
    pub async fn sign_up_once(&self, name: Name, once: &StrangersKey) -> Result<Person, Error> {
        let keys: Vec<String> =
            self.secrets.iter().map(|secret| keys::derive(keys::OF_PEOPLE, secret, &once.0)).collect();
        for key in &keys {
            if let Some(person) = self.signed_up(&name, key).await? {
                return Ok(person);
            }
        }
        let key = keys.into_iter().next().ok_or_else(|| Error::internal("no secret to sign people up with"))?;
        match self.create(name.clone(), &key).await {
            Ok(row) => Ok(self.person(row, Some(key))),
            // The same request may have arrived twice at once.
            Err(error) => self.signed_up(&name, &key).await?.ok_or(error),
        }
    }

    /// Who signed up with this key, under the same name.
    async fn signed_up(&self, name: &Name, key: &str) -> Result<Option<Person>, Error> {
        let hash = keys::hash(key);
        let found = self
            .stores
            .query(move |conn| async move { db::credentials::people_by_keys(conn, &[hash.as_slice()]).await }.boxed());
        let Some((_, id)) = found.await?.into_iter().next() else { return Ok(None) };
        let person = self.find(PersonId(id)).await?;
        if person.name != name.0 {
            return Err(Error::KeyReused);
        }
        Ok(Some(Person { api_key: Some(key.to_owned()), ..person }))
    }

    async fn create(&self, name: Name, key: &str) -> Result<PersonRow, Error> {
        let (id, hash) = (PersonId(Uuid::now_v7()), keys::hash(key));
        let made = self.stores.query(move |conn| {
            async move {
                conn.transaction(async |conn| {
                    let person = db::people::create(conn, id, &name.0).await?;
                    db::credentials::add_key(conn, id, FIRST_KEY, &hash).await?;
                    Ok::<_, Error>(person)
                })
                .await
            }
            .boxed()
        });
        made.await
    }

    /// Makes a person at a browser, which keeps a session and needs no key.
    pub async fn sign_up_here(&self, name: Name) -> Result<PersonId, Error> {
        let id = PersonId(Uuid::now_v7());
        self.stores.query(move |conn| async move { db::people::create(conn, id, &name.0).await }.boxed()).await?;
        Ok(id)
    }

    pub async fn find(&self, person: PersonId) -> Result<Person, Error> {
        let row = self.stores.query(move |conn| db::people::find(conn, person).boxed()).await?;
        Ok(self.person(row.ok_or(NO_SUCH_PERSON)?, None))
    }

    pub async fn balance(&self, person: PersonId) -> Result<Balance, Error> {
        let Person { balance, currency, .. } = self.find(person).await?;
        Ok(Balance { balance, currency })
    }

    /// Adds money, once for each key: the same key again gives the same answer.
    pub async fn charge(&self, person: PersonId, key: IdempotencyKey, amount: i64) -> Result<Charged, Error> {
        if !(1..=LARGEST_CHARGE).contains(&amount) {
            return Err(Error::InvalidRequest(format!("amount is a whole number from 1 to {LARGEST_CHARGE}.")));
        }
        let row = self.charger.ask(Charge { person, key, amount }).await?;
        if row.amount != amount {
            return Err(Error::KeyReused);
        }
        Ok(Charged {
            charge_id: row.id,
            amount: row.amount,
            balance: row.balance,
            currency: self.currency.clone(),
            charged_at: row.created_at,
        })
    }

    /// The ledger of a person, newest first.
    pub async fn movements(&self, person: PersonId, page: &Page) -> Result<PageOf<Movement>, Error> {
        let (cursor, most) = (page.from(i64::MAX)?, page.most());
        let rows = self.stores.query(move |conn| db::people::movements(conn, person, cursor, most).boxed()).await?;
        let movement = |row: MovementRow| Movement {
            movement_id: row.id,
            kind: row.kind,
            amount: row.amount,
            balance: row.balance,
            order_id: row.order_id.map(OrderId),
            ticket_id: row.ticket_id.map(TicketId),
            moved_at: row.created_at,
        };
        Ok(page.of(rows.into_iter().map(movement).collect(), |movement| movement.movement_id.to_string()))
    }

    /// What a person paid, newest first.
    pub async fn payments(&self, person: PersonId, page: &Page) -> Result<PageOf<Payment>, Error> {
        let (cursor, most) = (page.before_order()?, page.most());
        let rows = self.stores.query(move |conn| db::people::payments(conn, person, cursor, most).boxed()).await?;
        let payment = |row: PaymentRow| Payment {
            payment_id: OrderId(row.order_id),
            order_id: OrderId(row.order_id),
            amount: row.amount,
            refunded: row.refunded,
            currency: self.currency.clone(),
            status: match row.refunded {
                0 => PaymentStatus::Paid,
                refunded if refunded == row.amount => PaymentStatus::Refunded,
                _ => PaymentStatus::PartlyRefunded,
            },
            paid_at: row.paid_at,
        };
        Ok(page.of(rows.into_iter().map(payment).collect(), |payment| payment.payment_id.to_string()))
    }

    fn person(&self, row: PersonRow, api_key: Option<String>) -> Person {
        Person {
            person_id: PersonId(row.id),
            name: row.name,
            api_key,
            balance: row.balance,
            currency: self.currency.clone(),
            created_at: row.created_at,
        }
    }
}

/// The loop that charges.
fn charger(pool: Pool) -> (Gather<Charge, ChargeRow>, impl Future<Output = ()>) {
    Gather::new("charging", CHARGING, move |batch: Batch<Charge, ChargeRow>| {
        let pool = pool.clone();
        async move {
            for (charge, answer) in batch {
                let _ = answer.send(charge_or_find(&pool, charge).await);
            }
        }
    })
}

/// The charge of this key, made now or earlier.
async fn charge_or_find(pool: &Pool, charge: Charge) -> Result<ChargeRow, Error> {
    let Charge { person, key: IdempotencyKey(key), amount } = charge;
    let mut conn = pool.get().await?;
    if let Some(row) = db::people::charge(&mut conn, person, &key, amount, HIGHEST_BALANCE).await? {
        return Ok(row);
    }
    let found = db::people::charge_by_key(&mut conn, person, &key).await?;
    found.ok_or_else(|| Error::BalanceLimit(format!("A balance can be charged up to {HIGHEST_BALANCE}.")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_trimmed_and_can_be_printed() {
        assert_eq!(Name::parse("  홍길동 ").unwrap().0, "홍길동");
        for wrong in ["", "   ", "a\nb", "\u{7f}x", &"x".repeat(51)] {
            assert!(Name::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(Name::parse(&"가".repeat(50)).is_ok());
    }

    #[test]
    fn an_idempotency_key_is_plain_and_short() {
        assert!(IdempotencyKey::parse("5f0c-1").is_ok());
        for wrong in ["", "a b", "ключ", &"x".repeat(101)] {
            assert!(IdempotencyKey::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_strangers_key_is_hard_to_guess() {
        for good in
            ["0123456789abcdef0123456789abcdef", "Zm9vYmFyYmF6cXV4cXV1eg", "6f1f0c1e-6a53-4c0a-9a2b-0f4c7b8a9d21"]
        {
            assert!(StrangersKey::parse(good).is_ok(), "{good}");
        }
        for wrong in [
            "",
            "first",
            "0123456789abcdef0123456789abcde",
            "Zm9vYmFyYmF6cXV4cXV1e",
            "Zm9vYmFy mF6cXV4cXV1eg",
            &"g".repeat(101),
        ] {
            assert!(StrangersKey::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn a_name_that_is_taken_keeps_its_bounds(text in r"(?s).{0,4}|\s{0,3}\PC{0,60}\s{0,3}") {
            if let Ok(Name(name)) = Name::parse(&text) {
                prop_assert!((1..=LONGEST_NAME).contains(&name.chars().count()));
                prop_assert_eq!(name.trim(), &name);
                prop_assert!(!name.chars().any(char::is_control));
                prop_assert_eq!(Name::parse(&name).unwrap().0, name, "taken once, it is taken again");
            }
        }

        #[test]
        fn an_idempotency_key_that_is_taken_is_taken_as_it_is(text in r"[!-~]{0,110}|(?s).{0,10}") {
            let fits = (1..=LONGEST_IDEMPOTENCY_KEY).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
            prop_assert_eq!(IdempotencyKey::parse(&text).ok().map(|key| key.0), fits.then_some(text));
        }
    }
}
