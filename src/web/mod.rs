//! HTTP: the API, the pages, push streams, limits. Handlers extract, call and render; rules live below. Knows no SQL and no
//! scripts.

pub mod answer;
pub mod api;
pub mod chunked;
pub mod client;
pub mod cookies;
pub mod error;
pub mod extract;
pub mod gauges;
pub mod gzip;
pub mod limits;
pub mod listener;
pub mod machine;
pub mod management;
pub mod measured;
pub mod operator;
pub mod order_push;
pub mod origin;
pub mod pages;
pub mod push;
pub mod route;
pub mod seat_maps;
pub mod serve;
pub mod site;
pub mod workers;
