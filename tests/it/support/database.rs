//! A database per test, copied from one that was migrated once.

use diesel::QueryableByName;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use tokio::sync::OnceCell;
use uuid::Uuid;

#[path = "../../../loadtest/promises.rs"]
mod promises;

use promises::PROMISES;

static TEMPLATE: OnceCell<String> = OnceCell::const_new();

pub struct TestDatabase {
    pub name: String,
    pub url: String,
}

impl TestDatabase {
    pub async fn new() -> Self {
        let template = TEMPLATE.get_or_init(make_template).await;
        let name = format!("t_{}", Uuid::now_v7().simple());
        admin().await.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}")).await.unwrap();
        Self { url: url_of(&name), name }
    }

    /// One without any table.
    pub async fn empty() -> Self {
        let name = format!("t_{}", Uuid::now_v7().simple());
        admin().await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        Self { url: url_of(&name), name }
    }

    pub async fn connect(&self) -> AsyncPgConnection {
        AsyncPgConnection::establish(&self.url).await.unwrap()
    }

    pub async fn execute(&self, sql: &str) {
        self.connect().await.batch_execute(sql).await.unwrap();
    }

    /// The one number a query answers; name it `n`.
    pub async fn number(&self, sql: &str) -> i64 {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = BigInt)]
            n: i64,
        }
        let row: Row = diesel::sql_query(sql).get_result(&mut self.connect().await).await.unwrap();
        row.n
    }

    /// What is true of sales and money whatever happened: each of these queries finds nothing.
    pub async fn check(&self) {
        for (promise, sql) in PROMISES {
            let broken = self.number(&format!("SELECT count(*) AS n FROM ({sql}) AS broken")).await;
            assert_eq!(broken, 0, "{promise}");
        }
    }

    pub async fn drop(self) {
        admin().await.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await.unwrap();
    }
}

async fn make_template() -> String {
    let name = format!("template_{}", Uuid::now_v7().simple());
    admin().await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    zticket::store::db::migrate::migrate(&url_of(&name)).await.unwrap();
    name
}

async fn admin() -> AsyncPgConnection {
    AsyncPgConnection::establish(&base_url()).await.unwrap()
}

fn base_url() -> String {
    std::env::var("DATABASE_URL").expect("DATABASE_URL: run the tests with `make test`, which starts a PostgreSQL")
}

fn url_of(name: &str) -> String {
    let base = base_url();
    let (server, _) = base.rsplit_once('/').unwrap();
    format!("{server}/{name}")
}
