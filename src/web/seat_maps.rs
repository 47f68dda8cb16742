//! Seat maps as JSON. A map is made of pieces: each is rendered and compressed once per change, for everyone. For a visitor
//! who holds a seat, only the pieces with their seats are rendered again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::base::error::Error;
use crate::base::ids::{Place, SeatNumber};
use crate::base::seat::SeatState;
use crate::event::Event;
use crate::event::per_event::PerEvent;
use crate::event::snapshot::SeatMap;
use crate::sale::views::{Seen, Views};
use crate::web::gzip::{self, Packed};

/// Seats in a piece: few enough that a piece is quick to render, enough that it compresses well.
const PIECE: usize = 256;

pub struct SeatMaps {
    views: Arc<Views>,
    /// The map of each event as everyone sees it.
    rendered: PerEvent<ArcSwapOption<Rendered>>,
}

/// The seat map as one visitor sees it.
pub struct MapView {
    event: Arc<Event>,
    everyones: Arc<Rendered>,
    own: OwnSeats,
}

/// What a visitor sees differently from everyone else: seats they hold, and seats they bought a moment ago.
type OwnSeats = BTreeMap<SeatNumber, Own>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    Held,
    Bought,
}

struct Rendered {
    seats: Arc<SeatMap>,
    pieces: Vec<Arc<Piece>>,
    etag: String,
    /// All pieces together, as most visitors get them.
    json: OnceLock<Bytes>,
    gzip: OnceLock<Bytes>,
}

/// Some seats, with the brackets or the comma that make the pieces one list.
struct Piece {
    json: Vec<u8>,
    hash: blake3::Hash,
    packed: OnceLock<Packed>,
}

/// A seat as a visitor sees it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Seat)]
#[serde(rename_all = "camelCase")]
pub struct SeatView<'a> {
    seat_number: SeatNumber,
    #[schema(example = "R-A9")]
    label: &'a str,
    status: SeatState,
    /// In whole units of the currency.
    #[schema(example = 132_000)]
    price: i64,
    /// Whether the queue token that was sent holds it.
    mine: bool,
}

impl SeatMaps {
    pub fn new(views: Arc<Views>) -> Self {
        Self { views, rendered: PerEvent::default() }
    }

    /// The map as the owner of this place sees it, or as everyone does.
    pub async fn view(&self, event: &Arc<Event>, place: Option<Place>) -> Result<MapView, Error> {
        let (seats, own) = match place {
            Some(place) => {
                let Seen { snapshot, bought } = self.views.seen_by(event, place).await?;
                let held = snapshot.seats.held_by(place).into_iter().map(|seat| (seat, Own::Held));
                let bought = bought.into_iter().map(|seat| (seat, Own::Bought));
                // What was bought is no longer held.
                (snapshot.seats.clone(), held.chain(bought).collect())
            }
            None => (self.views.current(event).await?.seats.clone(), OwnSeats::new()),
        };
        let rendered = self.rendered.of(event.id);
        let known = rendered.load_full();
        let everyones = match known.as_ref().filter(|known| Arc::ptr_eq(&known.seats, &seats)) {
            Some(known) => known.clone(),
            None => {
                let fresh = Arc::new(Rendered::new(event, seats.clone(), known.as_deref())?);
                // Another worker may have rendered the same map: then it is compressed once for both.
                match rendered.load_full().filter(|known| Arc::ptr_eq(&known.seats, &seats)) {
                    Some(known) => known,
                    None => {
                        rendered.store(Some(fresh.clone()));
                        fresh
                    }
                }
            }
        };
        Ok(MapView { event: event.clone(), everyones, own })
    }
}

impl MapView {
    /// Names what is shown: the same name, the same content.
    pub fn etag(&self) -> String {
        let own = self.own.iter().map(|(seat, own)| match own {
            Own::Held => format!("-{seat}"),
            Own::Bought => format!("+{seat}"),
        });
        std::iter::once(self.everyones.etag.clone()).chain(own).collect()
    }

    pub fn json(&self, gzip: bool) -> Result<Bytes, Error> {
        if !self.own.is_empty() {
            return joined(&self.pieces()?, gzip);
        }
        let whole = if gzip { &self.everyones.gzip } else { &self.everyones.json };
        match whole.get() {
            Some(bytes) => Ok(bytes.clone()),
            None => {
                let bytes = joined(&self.everyones.pieces, gzip)?;
                Ok(whole.get_or_init(|| bytes).clone())
            }
        }
    }

    fn pieces(&self) -> Result<Vec<Arc<Piece>>, Error> {
        let mut pieces = self.everyones.pieces.clone();
        for (at, piece) in pieces.iter_mut().enumerate() {
            let range = range(at, &self.event);
            if self.own.keys().any(|seat| seat.index().is_some_and(|index| range.contains(&index))) {
                *piece = Arc::new(Piece::new(&self.event, &self.everyones.seats, range, &self.own)?);
            }
        }
        Ok(pieces)
    }
}

impl Rendered {
    /// Pieces in which nothing changed are those of the map before.
    fn new(event: &Event, seats: Arc<SeatMap>, before: Option<&Self>) -> Result<Self, Error> {
        let count = event.seats.len().div_ceil(PIECE).max(1);
        let piece = |at: usize| {
            let range = range(at, event);
            let same = |before: &&Self| before.seats.states.get(range.clone()) == seats.states.get(range.clone());
            match before.filter(same).and_then(|before| before.pieces.get(at)) {
                Some(known) => Ok(known.clone()),
                None => Piece::new(event, &seats, range, &OwnSeats::new()).map(Arc::new),
            }
        };
        let pieces: Vec<Arc<Piece>> = (0..count).map(piece).collect::<Result<_, Error>>()?;
        let mut hasher = blake3::Hasher::new();
        for piece in &pieces {
            hasher.update(piece.hash.as_bytes());
        }
        let etag = hasher.finalize().to_hex().as_str().chars().take(24).collect();
        Ok(Self { seats, pieces, etag, json: OnceLock::new(), gzip: OnceLock::new() })
    }
}

fn joined(pieces: &[Arc<Piece>], gzip: bool) -> Result<Bytes, Error> {
    if !gzip {
        return Ok(pieces.iter().map(|piece| piece.json.as_slice()).collect::<Vec<_>>().concat().into());
    }
    let packed: Vec<&Packed> = pieces.iter().map(|piece| piece.packed()).collect::<Result<_, _>>()?;
    Ok(gzip::join(packed.into_iter()))
}

/// The seats of a piece.
fn range(piece: usize, event: &Event) -> Range<usize> {
    let first = piece * PIECE;
    first..(first + PIECE).min(event.seats.len())
}

impl Piece {
    fn new(event: &Event, seats: &SeatMap, range: Range<usize>, own: &OwnSeats) -> Result<Self, Error> {
        let mut json = Vec::with_capacity(range.len() * 100 + 2);
        json.push(if range.start == 0 { b'[' } else { b',' });
        for (index, seat) in event.seats.iter().enumerate().skip(range.start).take(range.len()) {
            if index > range.start {
                json.push(b',');
            }
            let seat_number = SeatNumber::at(index);
            let own = own.get(&seat_number);
            let view = SeatView {
                seat_number,
                label: &seat.label,
                // A seat that Redis does not know is not offered.
                status: match seats.states.get(index) {
                    Some(state) if own != Some(&Own::Bought) => *state,
                    _ => SeatState::Sold,
                },
                price: seat.price,
                mine: own == Some(&Own::Held),
            };
            serde_json::to_writer(&mut json, &view).map_err(Error::internal)?;
        }
        if range.end >= event.seats.len() {
            json.push(b']');
        }
        Ok(Self { hash: blake3::hash(&json), json, packed: OnceLock::new() })
    }

    fn packed(&self) -> Result<&Packed, Error> {
        match self.packed.get() {
            Some(packed) => Ok(packed),
            None => {
                let packed = Packed::new(&self.json)?;
                Ok(self.packed.get_or_init(|| packed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hall::Hall;
    use crate::base::ids::EventId;
    use crate::base::policy::Policy;
    use crate::base::token::MasterKeys;
    use crate::event::Seat;
    use crate::event::facts::tests::always_open;
    use serde_json::Value;
    use std::io::Read;

    fn event(seats: usize) -> Arc<Event> {
        let id = EventId::new(1).unwrap();
        let master = MasterKeys { current: [7; 32], previous: None };
        let seat = |number| Seat { label: format!("A{number}"), price: 1000 };
        let hall = Hall::new(vec![(String::new(), vec![seats])]);
        Arc::new(Event::new(
            id,
            (1..=seats).map(seat).collect(),
            hall,
            uuid::Uuid::nil(),
            &master,
            always_open(),
            &Policy::default(),
        ))
    }

    fn seat_map(seats: usize, sold: &[usize]) -> Arc<SeatMap> {
        let mut states = vec![SeatState::Available; seats];
        sold.iter().for_each(|at| states[*at] = SeatState::Sold);
        Arc::new(SeatMap { states, ..SeatMap::default() })
    }

    fn read(view: &MapView) -> Vec<Value> {
        let json = view.json(false).unwrap();
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*view.json(true).unwrap()).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, json);
        serde_json::from_slice(&json).unwrap()
    }

    #[test]
    fn the_pieces_are_one_list_of_all_seats() {
        for seats in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7] {
            let event = event(seats);
            let everyones = Arc::new(Rendered::new(&event, seat_map(seats, &[]), None).unwrap());
            let list = read(&MapView { event, everyones, own: OwnSeats::new() });
            let numbers: Vec<u64> = list.iter().filter_map(|seat| seat["seatNumber"].as_u64()).collect();
            assert_eq!(numbers, (1..=seats as u64).collect::<Vec<_>>());
            assert!(list.iter().all(|seat| seat["status"] == "available" && seat["mine"] == false));
        }
    }

    #[test]
    fn only_pieces_that_changed_or_differ_for_a_visitor_are_rendered() {
        let (seats, event) = (4 * PIECE, event(4 * PIECE));
        let first = Arc::new(Rendered::new(&event, seat_map(seats, &[5]), None).unwrap());
        let second = Arc::new(Rendered::new(&event, seat_map(seats, &[5, 2 * PIECE]), Some(&first)).unwrap());
        let same = |one: &[Arc<Piece>], other: &[Arc<Piece>]| -> Vec<bool> {
            one.iter().zip(other).map(|(one, other)| Arc::ptr_eq(one, other)).collect()
        };
        assert_eq!(same(&first.pieces, &second.pieces), [true, true, false, true]);
        assert_ne!(first.etag, second.etag);

        let own = BTreeMap::from([(SeatNumber::at(0), Own::Held), (SeatNumber::at(PIECE), Own::Bought)]);
        let view = MapView { event, everyones: second.clone(), own };
        assert_eq!(same(&view.pieces().unwrap(), &second.pieces), [false, false, true, true]);
        let list = read(&view);
        assert_eq!((&list[0]["mine"], &list[0]["status"]), (&true.into(), &"available".into()));
        assert_eq!((&list[PIECE]["mine"], &list[PIECE]["status"]), (&false.into(), &"sold".into()));
        assert_eq!(list[2 * PIECE]["status"], "sold");
        assert_eq!(view.etag(), format!("{}-1+{}", second.etag, PIECE + 1));
    }
}
