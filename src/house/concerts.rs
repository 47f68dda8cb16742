//! Concerts and their dates, as the audience sees them: from memory, with what the snapshots say about seats and lines.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures_util::future::try_join_all;
use serde::Serialize;
use utoipa::ToSchema;

use crate::base::control::State;
use crate::base::error::Error;
use crate::base::ids::{ConcertId, EventId, SeatNumber};
use crate::base::paging::{Page, PageOf};
use crate::base::seat::SeatState;
use crate::event::Event;
use crate::event::catalogue::Catalogue;
use crate::event::facts::{Booking, Concert};
use crate::event::snapshot::Snapshot;
use crate::sale::views::Views;

pub struct Concerts {
    catalogue: Arc<Catalogue>,
    views: Arc<Views>,
    currency: String,
}

/// Whether an event or a concert can be booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SaleStatus)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    Scheduled,
    OnSale,
    Paused,
    Closed,
    SoldOut,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConcertView {
    pub concert_id: ConcertId,
    pub title: String,
    pub description: String,
    pub booking_opens_at: DateTime<Utc>,
    pub booking_closes_at: DateTime<Utc>,
    /// From its booking window alone; its dates say more.
    pub status: Status,
    pub price_from: i64,
    pub price_to: i64,
    pub currency: String,
    pub date_count: usize,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConcertDetails {
    #[serde(flatten)]
    pub concert: ConcertView,
    pub dates: Vec<DateView>,
}

/// A date of a concert.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DateView {
    pub event_id: EventId,
    #[schema(required)]
    pub starts_at: Option<DateTime<Utc>>,
    pub status: Status,
    pub seats_total: usize,
    /// Not sold yet.
    pub seats_left: u64,
    /// Neither sold nor held.
    pub seats_available: u64,
    pub waiting_count: u64,
    pub price_from: i64,
    pub price_to: i64,
    pub currency: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    #[serde(flatten)]
    pub date: DateView,
    pub title: String,
    #[schema(required)]
    pub concert_id: Option<ConcertId>,
    #[schema(required)]
    pub booking_opens_at: Option<DateTime<Utc>>,
    #[schema(required)]
    pub booking_closes_at: Option<DateTime<Utc>>,
    #[schema(required)]
    pub cancel_until: Option<DateTime<Utc>>,
    pub one_place_per_person: bool,
    pub max_seats_per_order: u64,
    pub sections: Vec<SectionView>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SectionView {
    pub name: String,
    pub price: i64,
    pub first_seat: SeatNumber,
    /// Seats in each row, nearest to the stage first.
    pub rows: Vec<usize>,
    pub seats_left: usize,
}

impl Concerts {
    pub fn new(catalogue: Arc<Catalogue>, views: Arc<Views>, currency: String) -> Self {
        Self { catalogue, views, currency }
    }

    pub fn list(&self, page: &Page) -> Result<PageOf<ConcertView>, Error> {
        let after = ConcertId(page.from(0)?);
        let concerts = self.catalogue.concerts();
        let later = concerts.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded));
        let most = usize::try_from(page.most()).unwrap_or(usize::MAX);
        let views = later.take(most).map(|(_, concert)| self.view(concert)).collect();
        Ok(page.of(views, |concert: &ConcertView| concert.concert_id.to_string()))
    }

    pub async fn find(&self, id: ConcertId) -> Result<ConcertDetails, Error> {
        let concert = self.catalogue.concert(id).await?;
        Ok(ConcertDetails { concert: self.view(&concert), dates: self.all_dates(&concert).await? })
    }

    /// The dates that can be booked, now or later.
    pub async fn dates(&self, id: ConcertId, page: &Page) -> Result<PageOf<DateView>, Error> {
        let concert = self.catalogue.concert(id).await?;
        let bookable = |date: &DateView| !matches!(date.status, Status::Closed | Status::SoldOut);
        let dates = self.all_dates(&concert).await?.into_iter().filter(bookable);
        // They are in order of time, so the cursor is a time and, for dates at the same time, the event.
        let after: String = page.from(String::new())?;
        let cursor = |date: &DateView| {
            let starts_at = date.starts_at.map_or(0, |starts_at| starts_at.timestamp_millis());
            format!("{starts_at:015}.{:08}", date.event_id.get())
        };
        Ok(page.of(dates.filter(|date| cursor(date) > after).collect(), cursor))
    }

    pub async fn event(&self, event: &Arc<Event>) -> Result<EventView, Error> {
        let snapshot = self.views.current(event).await?;
        let facts = event.facts();
        let sections = event.hall.sections.iter().map(|section| SectionView {
            name: section.name.clone(),
            price: event.seat(section.first_seat).map_or(0, |seat| seat.price),
            first_seat: section.first_seat,
            rows: section.rows.clone(),
            seats_left: snapshot.seats.count_in(section.seats(), |state| state != SeatState::Sold),
        });
        Ok(EventView {
            date: self.date(event, &snapshot),
            title: facts.title.clone(),
            concert_id: facts.concert,
            booking_opens_at: facts.opens_at,
            booking_closes_at: facts.closes_at,
            cancel_until: facts.cancel_until,
            one_place_per_person: facts.one_place_per_person,
            max_seats_per_order: snapshot.policy.seats_per_pass,
            sections: sections.collect(),
        })
    }

    fn view(&self, concert: &Concert) -> ConcertView {
        let now = Utc::now();
        let prices = concert.dates.iter().filter_map(|date| self.catalogue.known(*date)?.prices());
        let (price_from, price_to) =
            prices.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))).unwrap_or_default();
        ConcertView {
            concert_id: concert.id,
            title: concert.title.clone(),
            description: concert.description.clone(),
            booking_opens_at: concert.opens_at,
            booking_closes_at: concert.closes_at,
            status: if now < concert.opens_at {
                Status::Scheduled
            } else if now < concert.closes_at {
                Status::OnSale
            } else {
                Status::Closed
            },
            price_from,
            price_to,
            currency: self.currency.clone(),
            date_count: concert.dates.len(),
        }
    }

    async fn all_dates(&self, concert: &Concert) -> Result<Vec<DateView>, Error> {
        let events = concert.dates.iter().filter_map(|date| self.catalogue.known(*date));
        try_join_all(events.map(|event| async move {
            let snapshot = self.views.current(&event).await?;
            Ok(self.date(&event, &snapshot))
        }))
        .await
    }

    fn date(&self, event: &Event, snapshot: &Snapshot) -> DateView {
        let (price_from, price_to) = event.prices().unwrap_or_default();
        DateView {
            event_id: event.id,
            starts_at: event.facts().starts_at,
            status: status(event, snapshot),
            seats_total: event.seats.len(),
            seats_left: snapshot.meta.seats.saturating_sub(snapshot.meta.sold),
            seats_available: snapshot.seats.available,
            waiting_count: snapshot.meta.waiting,
            price_from,
            price_to,
            currency: self.currency.clone(),
        }
    }
}

fn status(event: &Event, snapshot: &Snapshot) -> Status {
    match (event.booking(), snapshot.meta.state) {
        (Booking::Over, _) | (_, State::Closed) => Status::Closed,
        (Booking::NotYet(_), _) => Status::Scheduled,
        _ if snapshot.sold_out() => Status::SoldOut,
        (Booking::Open, State::Paused) => Status::Paused,
        (Booking::Open, State::Open) => Status::OnSale,
    }
}
