//! `ranking_set`: absolute scores.

use std::time::Duration;

use redis::AsyncCommands;
use zticket::base::ids::ConcertId;
use zticket::store::redis::keys::{Key, Keys};

use super::fixture::Fixture;

async fn set(event: &Fixture, as_of: i64, whole: bool, scores: &[(i32, Option<i64>)]) -> u64 {
    let scores: Vec<_> = scores.iter().map(|(concert, score)| (ConcertId(*concert), *score)).collect();
    let keys = Keys::ranking("test");
    let lasts = Some(Duration::from_secs(1000));
    event.scripts.ranking_set(&mut event.conn(), &keys, as_of, lasts, whole, &scores).await.unwrap()
}

async fn scores(event: &Fixture) -> Vec<(i32, i64)> {
    event.conn().zrange_withscores(Keys::ranking("test").get(Key::Ranking), 0, -1).await.unwrap()
}

#[tokio::test]
async fn scores_are_set_and_removed() {
    let event = Fixture::new().await;
    assert_eq!(set(&event, 100, false, &[(1, Some(5)), (2, Some(3)), (3, None)]).await, 3);
    assert_eq!(scores(&event).await, [(2, 3), (1, 5)]);
    assert_eq!(set(&event, 101, false, &[(1, Some(2)), (2, None)]).await, 2);
    assert_eq!(scores(&event).await, [(1, 2)]);
}

#[tokio::test]
async fn an_older_count_changes_nothing() {
    let event = Fixture::new().await;
    set(&event, 100, false, &[(1, Some(5)), (2, None)]).await;
    assert_eq!(set(&event, 99, false, &[(1, Some(4)), (2, Some(1)), (3, Some(7))]).await, 1);
    assert_eq!(scores(&event).await, [(1, 5), (3, 7)]);
    assert_eq!(set(&event, 100, false, &[(1, Some(5))]).await, 1, "the same once more is fine");
}

#[tokio::test]
async fn a_ranking_is_built_once_all_concerts_are_counted_and_expires() {
    let event = Fixture::new().await;
    let keys = Keys::ranking("test");
    let built = async || -> bool { event.conn().hexists(keys.get(Key::AsOf), "*").await.unwrap() };
    set(&event, 100, false, &[(1, Some(5))]).await;
    assert!(!built().await);
    set(&event, 101, true, &[(1, Some(5))]).await;
    assert!(built().await);
    for key in [Key::Ranking, Key::AsOf] {
        let left: i64 = event.conn().pttl(keys.get(key)).await.unwrap();
        assert!((990_000..=1_000_000).contains(&left), "{left}");
    }
}
