//! What handlers reach. `server` puts it together; no layer below knows it.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::watch;

use crate::base::error::Error;
use crate::base::metrics::Metrics;
use crate::base::seal::Seal;
use crate::event::catalogue::Catalogue;
use crate::event::scrape::Scrape;
use crate::house::concerts::Concerts;
use crate::house::credentials::Credentials;
use crate::house::desk::Desk;
use crate::house::history::History;
use crate::house::operators::Operators;
use crate::house::people::People;
use crate::house::programme::Programme;
use crate::house::rankings::Rankings;
use crate::sale::entrance::{Entrance, Entry};
use crate::sale::line::Line;
use crate::sale::orders::Orders;
use crate::sale::seats::Seats;
use crate::sale::tickets::Tickets;
use crate::sale::views::Views;
use crate::store::Access;
use crate::store::redis::lane::Lane;
use crate::web::cookies::Cookies;
use crate::web::limits::Limits;
use crate::web::machine::Processors;
use crate::web::seat_maps::SeatMaps;
use crate::web::workers::Workers;

/// Shared by all web workers.
pub struct Site {
    pub stores: Access,
    pub metrics: Arc<Metrics>,
    pub scrape: Scrape,
    pub workers: Workers,
    pub processors: Processors,
    pub catalogue: Arc<Catalogue>,
    pub views: Arc<Views>,
    pub entry: Entry,
    pub line: Arc<Line>,
    pub seats: Arc<Seats>,
    pub tickets: Arc<Tickets>,
    pub orders: Orders,
    pub concerts: Concerts,
    pub people: People,
    pub credentials: Credentials,
    pub operators: Operators,
    pub desk: Desk,
    pub history: Arc<History>,
    pub programme: Programme,
    pub rankings: Arc<Rankings>,
    pub seat_maps: SeatMaps,
    pub limits: Limits,
    pub seal: Seal,
    pub settings: Settings,
    /// Turns true when the server stops: open streams end then.
    pub stopping: watch::Sender<bool>,
}

pub struct Settings {
    /// Proxies whose word on the client's address is taken.
    pub trusted_proxies: Vec<IpNet>,
    pub cookies: Cookies,
    /// Other sites whose pages may use the API.
    pub allowed_origins: Vec<String>,
    /// How long a connection may be quiet between requests, and how long a request's head and body may take to arrive.
    pub request_time: Duration,
    /// Most connections open at once.
    pub max_connections: usize,
    pub currency: String,
    pub time_zone: chrono_tz::Tz,
}

/// What one web worker has to itself, beside the site.
pub struct Worker {
    pub site: Arc<Site>,
    pub lane: Lane,
    pub entrance: Entrance,
}

impl Worker {
    /// One of this many workers.
    pub fn new(site: Arc<Site>, workers: usize) -> Result<Self, Error> {
        let lane = site.stores.lane(workers)?;
        let entrance = Entrance::new(site.entry.clone(), lane.link());
        Ok(Self { site, lane, entrance })
    }
}
