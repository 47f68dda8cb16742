//! The database: up, down and up again; every column explained; the generated schema is the real one.

use diesel::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::{AsyncMigrationHarness, RunQueryDsl};
use diesel_migrations::MigrationHarness;
use zticket_testkit::Database;

use crate::support::{database, empty_database};

#[derive(QueryableByName, Debug, PartialEq, Eq)]
struct Line {
    #[diesel(sql_type = Text)]
    line: String,
}

async fn lines(db: &Database, sql: &str) -> Vec<String> {
    let lines: Vec<Line> = diesel::sql_query(sql).load(&mut db.connect().await.unwrap()).await.unwrap();
    lines.into_iter().map(|line| line.line).collect()
}

/// Everything in the database that a migration can make.
const SHAPE: &str = "
    SELECT format('column %s.%s %s %s %s', table_name, column_name, udt_name, is_nullable, column_default) AS line
    FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE '\\_\\_%'
    UNION ALL SELECT format('index %s', indexdef) FROM pg_indexes
    WHERE schemaname = 'public' AND tablename NOT LIKE '\\_\\_%'
    UNION ALL SELECT format('constraint %s %s', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text NOT LIKE '\\_\\_%'
    ORDER BY line";

#[tokio::test(flavor = "multi_thread")]
async fn migrations_go_down_and_up_again_to_the_same_shape() {
    let db = empty_database().await;
    assert!(!zticket::store::db::migrate::migrate(&db.url).await.unwrap().is_empty());
    assert!(
        zticket::store::db::migrate::migrate(&db.url).await.unwrap().is_empty(),
        "a second run finds nothing to do"
    );
    let first = lines(&db, SHAPE).await;
    assert!(first.len() > 30);
    let mut harness = AsyncMigrationHarness::new(db.connect().await.unwrap());
    harness.revert_all_migrations(zticket::store::db::migrate::MIGRATIONS).unwrap();
    assert_eq!(lines(&db, SHAPE).await, Vec::<String>::new(), "going down leaves nothing behind");
    harness.run_pending_migrations(zticket::store::db::migrate::MIGRATIONS).unwrap();
    assert_eq!(lines(&db, SHAPE).await, first);
    drop(harness);
    db.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_and_column_has_a_comment() {
    let db = database().await;
    let silent = lines(
        &db,
        "SELECT format('%s.%s', c.relname, a.attname) AS line FROM pg_class c
         JOIN pg_attribute a ON a.attrelid = c.oid AND (a.attnum > 0 OR a.attname = 'tableoid') AND NOT a.attisdropped
         WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE '\\_\\_%'
         AND CASE WHEN a.attnum > 0 THEN col_description(c.oid, a.attnum) ELSE obj_description(c.oid) END IS NULL",
    )
    .await;
    assert_eq!(silent, Vec::<String>::new());
    db.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_generated_schema_is_that_of_the_database() {
    let db = database().await;
    let columns = lines(
        &db,
        "SELECT format('%s %s %s%s', table_name, column_name, udt_name, CASE is_nullable WHEN 'YES' THEN '?' END) AS line
         FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT LIKE '\\_\\_%'
         ORDER BY table_name, ordinal_position",
    )
    .await;
    // The lines `name -> Type,` of src/store/db/schema.rs, in the words of the database.
    let mut table = String::new();
    let mut generated = Vec::new();
    for line in include_str!("../../src/store/db/schema.rs").lines().map(str::trim) {
        if let Some((name, _)) = line.split_once(" (").filter(|_| line.ends_with(") {")) {
            table = name.to_owned();
        } else if let Some((column, kind)) = line.strip_suffix(',').and_then(|line| line.split_once(" -> ")) {
            let (kind, nullable) = match kind.strip_prefix("Nullable<").and_then(|kind| kind.strip_suffix('>')) {
                Some(kind) => (kind, "?"),
                None => (kind, ""),
            };
            let element = kind.strip_prefix("Array<Nullable<").and_then(|kind| kind.strip_suffix(">>"));
            let kind = element.map_or(kind.to_lowercase(), |element| format!("_{}", element.to_lowercase()));
            generated.push(format!("{table} {column} {kind}{nullable}"));
        }
    }
    assert_eq!(generated, columns, "update src/store/db/schema.rs with `diesel print-schema`");
    db.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn seats_made_before_there_were_sections_get_one() {
    let db = empty_database().await;
    let mut harness = AsyncMigrationHarness::new(db.connect().await.unwrap());
    harness.run_next_migration(zticket::store::db::migrate::MIGRATIONS).unwrap();
    Database::execute(
        &db,
        "INSERT INTO events (id, title) VALUES (1, 'A'), (2, 'B'), (3, 'C');
         INSERT INTO seats (event_id, number, label) SELECT 1, n, n::text FROM generate_series(1, 50) AS n;
         INSERT INTO seats (event_id, number, label) SELECT 2, n, n::text FROM generate_series(1, 23) AS n;
         INSERT INTO seats (event_id, number, label) VALUES (3, 1, 'A1')",
    )
    .await
    .unwrap();
    harness.run_pending_migrations(zticket::store::db::migrate::MIGRATIONS).unwrap();
    let sections =
        lines(&db, "SELECT format('%s %s', event_id, row_lengths) AS line FROM sections ORDER BY line").await;
    assert_eq!(sections, ["1 {10,10,10,10,10}", "2 {10,10,3}", "3 {1}"]);
    drop(harness);
    db.remove().await.unwrap();
}
