//! A database of its own in a PostgreSQL that runs already, and plain questions to it.

use diesel::QueryableByName;
use diesel::pg::Pg;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::Outcome;
use crate::promises::PROMISES;

/// Name of a migrated database to copy. There is one a process: migrating takes longer than copying.
static TEMPLATE: OnceCell<String> = OnceCell::const_new();

pub struct Database {
    pub url: String,
    /// The database this one was made from, if it was.
    parent: Option<String>,
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    n: i64,
}

#[derive(QueryableByName)]
struct Answer {
    #[diesel(sql_type = Text)]
    answer: String,
}

impl Database {
    /// The one `DATABASE_URL` names. New databases are made beside it.
    pub fn from_env() -> Outcome<Self> {
        let url = std::env::var("DATABASE_URL")
            .map_err(|_| "DATABASE_URL is not set: start this by `make` or `scripts/`, which start a PostgreSQL")?;
        Ok(Self { url, parent: None })
    }

    /// A new one without any table. One of this name that was left behind is dropped.
    pub async fn create(&self, name: &str) -> Outcome<Self> {
        self.execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        self.execute(&format!("CREATE DATABASE {name}")).await?;
        self.made(name)
    }

    /// A new one with all tables.
    pub async fn create_migrated(&self, name: &str) -> Outcome<Self> {
        let template = TEMPLATE.get_or_try_init(|| self.make_template()).await?;
        self.execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await?;
        self.made(name)
    }

    async fn make_template(&self) -> Outcome<String> {
        let name = unused_name("template");
        zticket::store::db::migrate::migrate(&self.create(&name).await?.url).await?;
        Ok(name)
    }

    fn made(&self, name: &str) -> Outcome<Self> {
        let (server, _) = self.url.rsplit_once('/').ok_or("DATABASE_URL names no database")?;
        Ok(Self { url: format!("{server}/{name}"), parent: Some(self.url.clone()) })
    }

    /// Drops a database that was made here.
    pub async fn remove(self) -> Outcome<()> {
        let parent = self.parent.clone().ok_or("this database is someone else's")?;
        let parent = Self { url: parent, parent: None };
        parent.execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name())).await
    }

    /// A copy of this one, as a backup. Nobody may be connected.
    pub async fn back_up(&self) -> Outcome<Self> {
        let parent = Self { url: self.parent.clone().ok_or("this database is someone else's")?, parent: None };
        let copy = unused_name("backup");
        parent.execute(&format!("CREATE DATABASE {copy} TEMPLATE {}", self.name())).await?;
        parent.made(&copy)
    }

    /// Puts a backup in place of this one, and everybody's connections are lost. The backup is used up.
    pub async fn restore(&self, backup: Self) -> Outcome<()> {
        let parent = Self { url: self.parent.clone().ok_or("this database is someone else's")?, parent: None };
        let (name, backup) = (self.name(), backup.name());
        parent.execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await?;
        parent.execute(&format!("ALTER DATABASE {backup} RENAME TO {name}")).await
    }

    pub fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }

    pub async fn connect(&self) -> Outcome<AsyncPgConnection> {
        Ok(AsyncPgConnection::establish(&self.url).await?)
    }

    pub async fn execute(&self, sql: &str) -> Outcome<()> {
        Ok(self.connect().await?.batch_execute(sql).await?)
    }

    pub async fn rows<T: QueryableByName<Pg> + Send + 'static>(&self, sql: &str) -> Outcome<Vec<T>> {
        // Imported here only: elsewhere its `execute` would hide ours.
        use diesel_async::RunQueryDsl;
        Ok(diesel::sql_query(sql).load(&mut self.connect().await?).await?)
    }

    /// The one number a query answers; name it `n`.
    pub async fn number(&self, sql: &str) -> Outcome<i64> {
        self.numbers(sql).await?.pop().ok_or_else(|| format!("no rows: {sql}").into())
    }

    /// The same of every row.
    pub async fn numbers(&self, sql: &str) -> Outcome<Vec<i64>> {
        Ok(self.rows::<Number>(sql).await?.into_iter().map(|row| row.n).collect())
    }

    /// The one text a query answers; name it `answer`.
    pub async fn text(&self, sql: &str) -> Outcome<String> {
        let row = self.rows::<Answer>(sql).await?.pop();
        row.map(|row| row.answer).ok_or_else(|| format!("no rows: {sql}").into())
    }

    /// Promises about sales and money that are broken now.
    pub async fn broken_promises(&self) -> Outcome<Vec<&'static str>> {
        let mut broken = Vec::new();
        for (promise, sql) in PROMISES {
            if self.number(&format!("SELECT count(*) AS n FROM ({sql}) AS broken")).await? > 0 {
                broken.push(*promise);
            }
        }
        Ok(broken)
    }
}

/// A name for a database that no other has.
pub fn unused_name(prefix: &str) -> String {
    format!("{prefix}_{}", Uuid::now_v7().simple())
}
