//! Seat maps as JSON: rendered and compressed once per change for everyone, and again only for visitors who hold a seat.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use serde::Serialize;

use crate::base::error::Error;
use crate::base::ids::{Place, SeatNumber};
use crate::base::seat::SeatState;
use crate::event::Event;
use crate::event::per_event::PerEvent;
use crate::event::snapshot::SeatMap;
use crate::sale::views::Views;
use crate::web::gzip;

pub struct SeatMaps {
    views: Arc<Views>,
    /// The map of each event as everyone sees it.
    rendered: PerEvent<ArcSwapOption<Rendered>>,
}

/// The seat map as one visitor sees it.
pub struct MapView {
    event: Arc<Event>,
    everyones: Arc<Rendered>,
    mine: BTreeSet<SeatNumber>,
}

struct Rendered {
    seats: Arc<SeatMap>,
    json: Bytes,
    gzip: OnceLock<Bytes>,
    etag: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SeatView<'a> {
    seat_number: SeatNumber,
    label: &'a str,
    status: SeatState,
    price: i64,
    mine: bool,
}

impl SeatMaps {
    pub fn new(views: Arc<Views>) -> Self {
        Self { views, rendered: PerEvent::default() }
    }

    /// The map as the owner of this place sees it, or as everyone does.
    pub async fn view(&self, event: &Arc<Event>, place: Option<Place>) -> Result<MapView, Error> {
        let seats = self.views.current(event).await?.seats.clone();
        let mine = place.map(|place| seats.held_by(place)).unwrap_or_default();
        let rendered = self.rendered.of(event.id);
        let everyones = match rendered.load_full().filter(|rendered| Arc::ptr_eq(&rendered.seats, &seats)) {
            Some(known) => known,
            None => {
                let fresh = Arc::new(Rendered::new(event, seats.clone(), &BTreeSet::new())?);
                // Another worker may have rendered the same map: then it is compressed once for both.
                match rendered.load_full().filter(|rendered| Arc::ptr_eq(&rendered.seats, &seats)) {
                    Some(known) => known,
                    None => {
                        rendered.store(Some(fresh.clone()));
                        fresh
                    }
                }
            }
        };
        Ok(MapView { event: event.clone(), everyones, mine })
    }
}

impl MapView {
    /// Names what is shown: the same name, the same content.
    pub fn etag(&self) -> String {
        let mine = self.mine.iter().map(|seat| format!("-{seat}"));
        std::iter::once(self.everyones.etag.clone()).chain(mine).collect()
    }

    pub fn json(&self, gzip: bool) -> Result<Bytes, Error> {
        if self.mine.is_empty() {
            return self.everyones.bytes(gzip);
        }
        Rendered::new(&self.event, self.everyones.seats.clone(), &self.mine)?.bytes(gzip)
    }
}

impl Rendered {
    fn new(event: &Event, seats: Arc<SeatMap>, mine: &BTreeSet<SeatNumber>) -> Result<Self, Error> {
        let views: Vec<SeatView> = event
            .seats
            .iter()
            .zip(&seats.states)
            .enumerate()
            .map(|(index, (seat, state))| SeatView {
                seat_number: SeatNumber::at(index),
                label: &seat.label,
                status: *state,
                price: seat.price,
                mine: mine.contains(&SeatNumber::at(index)),
            })
            .collect();
        let json = serde_json::to_vec(&views).map_err(Error::internal)?;
        let hash = blake3::hash(&json).to_hex();
        let etag = hash.as_str().chars().take(24).collect();
        Ok(Self { seats, json: json.into(), gzip: OnceLock::new(), etag })
    }

    fn bytes(&self, gzip: bool) -> Result<Bytes, Error> {
        match self.gzip.get() {
            _ if !gzip => Ok(self.json.clone()),
            Some(bytes) => Ok(bytes.clone()),
            None => {
                let bytes = gzip::compress(&self.json)?;
                Ok(self.gzip.get_or_init(|| bytes).clone())
            }
        }
    }
}
