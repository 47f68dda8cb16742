//! The operator's desk: how every sale goes, and what an operator does about it. Every change is an entry in the audit log.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures_util::FutureExt;
use futures_util::future::{join_all, try_join_all};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::base::control::{Act, Control, Reason, State};
use crate::base::error::Error;
use crate::base::ids::{ConcertId, EventId, PersonId, SeatNumber, TicketId};
use crate::base::paging::{Page, PageOf};
use crate::base::seat::SeatState;
use crate::base::token::Token;
use crate::event::Event;
use crate::event::catalogue::Catalogue;
use crate::event::estimate::Range;
use crate::event::facts::Booking;
use crate::event::snapshot::{Snapshot, Standing};
use crate::house::history::{History, RefusedBy};
use crate::house::operators::Operator;
use crate::sale::control::{Controls, Decided, Decision, PolicyView};
use crate::sale::line::Line;
use crate::sale::tickets::{Ticket, Tickets};
use crate::sale::views::Views;
use crate::store::db::audit_log::{Entry, EntryRow};
use crate::store::redis::lane::Lane;
use crate::store::{Stores, db};

/// How long figures from memory wait for what the database adds.
const LONGEST_EXTRA: Duration = Duration::from_secs(1);
const LONGEST_WHY: usize = 500;
/// People of one name whose tickets are shown.
const MOST_NAMESAKES: i64 = 10;

pub struct Desk {
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
    views: Arc<Views>,
    controls: Arc<Controls>,
    line: Arc<Line>,
    tickets: Arc<Tickets>,
    history: Arc<History>,
}

/// A sale as its operator sees it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SaleView {
    pub event_id: EventId,
    pub title: String,
    #[schema(required)]
    pub concert_id: Option<ConcertId>,
    #[schema(required)]
    pub starts_at: Option<DateTime<Utc>>,
    pub state: State,
    #[schema(required)]
    pub reason: Option<Reason>,
    /// Whether it is on sale at this time, whatever operators decided.
    pub booking: BookingTime,
    /// False while Redis does not have the last decision yet.
    pub in_force: bool,
    pub figures: Figures,
    pub policy: PolicyView,
    /// People let in per second lately; null while unknown.
    #[schema(required)]
    pub pace: Option<f64>,
    /// The share of people let in within the time they were first told; null while unknown.
    #[schema(required)]
    pub estimate_score: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BookingTime {
    NotYet,
    Open,
    Over,
}

/// What needs an operator, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attention {
    /// Redis and database disagree, and nothing is sold.
    DatabaseBehind,
    /// The figures cannot be read.
    NoFigures,
    Paused,
    /// People wait.
    Busy,
    Calm,
    /// Closed, or not on sale.
    Over,
}

#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    pub seats: u64,
    pub waiting: u64,
    /// Of those, how many were silent lately. They keep their places and are passed over.
    pub absent: u64,
    pub inside: u64,
    pub held: u64,
    pub sold: u64,
    /// Seats not sold.
    pub left: u64,
    /// Seats neither sold nor held.
    pub available: u64,
    /// What the sold seats cost together.
    pub revenue: i64,
    /// Since the event began.
    pub entered: u64,
    pub admitted: u64,
    /// Places dropped because nobody asked about them.
    pub swept: u64,
    /// Places given up.
    pub gave_up: u64,
    /// Passes that ran out.
    pub overdue: u64,
    /// Refused in the last hour, by the code of the error; null while the database cannot say.
    #[schema(required, value_type = Option<BTreeMap<String, i64>>)]
    pub refused: Option<RefusedBy>,
}

/// A ticket that an operator looked for, and the person who bought it.
pub struct Found {
    pub ticket: Ticket,
    pub person: Option<PersonId>,
}

/// An entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    #[serde(skip)]
    pub id: i64,
    pub at: DateTime<Utc>,
    pub who: String,
    pub action: String,
    #[schema(required)]
    pub event: Option<i32>,
    #[schema(required)]
    pub before: Option<Value>,
    #[schema(required)]
    pub after: Option<Value>,
}

impl Desk {
    pub fn new(
        stores: Arc<Stores>,
        catalogue: Arc<Catalogue>,
        views: Arc<Views>,
        controls: Arc<Controls>,
        line: Arc<Line>,
        tickets: Arc<Tickets>,
        history: Arc<History>,
    ) -> Self {
        Self { stores, catalogue, views, controls, line, tickets, history }
    }

    /// All sales, in order of their numbers.
    pub async fn sales(&self, page: &Page) -> Result<PageOf<SaleView>, Error> {
        let after: u32 = page.from(0)?;
        let mut events = self.catalogue.all();
        events.retain(|event| event.id.get() > after);
        events.sort_by_key(|event| event.id);
        events.truncate(usize::try_from(page.most()).unwrap_or(usize::MAX));
        let mut sales = try_join_all(events.iter().map(|event| self.seen(event))).await?;
        self.add_refused(&mut sales).await;
        Ok(page.of(sales, |sale| sale.event_id.to_string()))
    }

    pub async fn sale(&self, event: &Arc<Event>) -> Result<SaleView, Error> {
        let mut sale = self.seen(event).await?;
        self.add_refused(std::slice::from_mut(&mut sale)).await;
        Ok(sale)
    }

    /// Without the database the other figures are shown all the same.
    async fn add_refused(&self, sales: &mut [SaleView]) {
        let refused = self.history.refused(sales.iter().map(|sale| sale.event_id).collect());
        match timeout(LONGEST_EXTRA, refused).await.unwrap_or(Err(Error::TooSlow("what was refused"))) {
            Ok(mut refused) => sales.iter_mut().for_each(|sale| sale.figures.refused = refused.remove(&sale.event_id)),
            Err(error) => tracing::debug!(%error, "shown without what was refused"),
        }
    }

    async fn seen(&self, event: &Arc<Event>) -> Result<SaleView, Error> {
        let snapshot = self.views.current(event).await?;
        // Another server may have taken a decision that this one has not read yet.
        if snapshot.in_force.version > event.control().version {
            let id = event.id;
            event.set_control(&self.stores.query(move |conn| db::controls::find(conn, id).boxed()).await?);
        }
        Ok(self.view(event, Some(&snapshot)))
    }

    fn view(&self, event: &Event, snapshot: Option<&Snapshot>) -> SaleView {
        let (facts, control) = (event.facts(), event.control());
        SaleView {
            event_id: event.id,
            title: facts.title.clone(),
            concert_id: facts.concert,
            starts_at: facts.starts_at,
            state: control.state,
            reason: control.reason.clone().filter(|_| control.state == State::Paused),
            booking: match event.booking() {
                Booking::NotYet(_) => BookingTime::NotYet,
                Booking::Open => BookingTime::Open,
                Booking::Over => BookingTime::Over,
            },
            in_force: !event.lacks_control(),
            figures: snapshot.map(|snapshot| figures(event, snapshot)).unwrap_or_default(),
            policy: PolicyView::new(&control, &event.configured),
            pace: snapshot.and_then(|snapshot| snapshot.pace),
            estimate_score: event.scores.share(),
        }
    }

    /// The sales that need attention most, after so many: with what each needs, and whether there are more. A sale whose
    /// figures cannot be read is shown with the last ones.
    pub async fn by_attention(&self, after: usize, most: usize) -> (Vec<(SaleView, Attention)>, bool) {
        let mut events: Vec<(Attention, Arc<Event>)> =
            self.catalogue.all().into_iter().map(|event| (self.attention(&event), event)).collect();
        let waiting = |event: &Event| event.snapshot.load().as_ref().map_or(0, |snapshot| snapshot.meta.waiting);
        events.sort_by_cached_key(|(attention, event)| (*attention, Reverse(waiting(event)), event.id));
        let more = events.len() > after.saturating_add(most);
        let shown = events.into_iter().skip(after).take(most).map(|(attention, event)| async move {
            match self.views.current(&event).await {
                Ok(snapshot) => (self.view(&event, Some(&snapshot)), attention),
                Err(_) => (self.view(&event, event.snapshot.load_full().as_deref()), Attention::NoFigures),
            }
        });
        (join_all(shown).await, more)
    }

    /// What a sale needs, as far as this server knows without asking.
    pub fn attention(&self, event: &Event) -> Attention {
        let snapshot = event.snapshot.load();
        let waiting = snapshot.as_ref().is_some_and(|snapshot| snapshot.meta.waiting > 0);
        match event.control().state {
            _ if event.check_database().is_err() => Attention::DatabaseBehind,
            State::Paused => Attention::Paused,
            State::Open if waiting && event.booking() == Booking::Open => Attention::Busy,
            State::Open if event.booking() == Booking::Open => Attention::Calm,
            _ => Attention::Over,
        }
    }

    /// How long the last person in line waits, and how long under changed settings; `None` while nobody can tell.
    pub async fn what_if(
        &self,
        event: &Arc<Event>,
        changes: &Map<String, Value>,
    ) -> Result<(Option<Range>, Option<Range>), Error> {
        let control = event.control();
        let then = Control { overrides: control.overrides.changed(changes)?, ..(*control).clone() };
        then.overrides.over(&event.configured).check()?;
        let policy = event.policy_under(&then);
        let snapshot = self.views.current(event).await?;
        let last = snapshot.meta.waiting.max(1);
        let now = event.outlook_under(&snapshot.policy).await.and_then(|outlook| outlook.range(last));
        let then = event.outlook_under(&policy).await.and_then(|outlook| outlook.range(last));
        Ok((now, then))
    }

    /// The settings in force.
    pub fn policy(&self, event: &Event) -> PolicyView {
        PolicyView::new(&event.control(), &event.configured)
    }

    /// Changes settings.
    pub async fn set_policy(
        &self,
        who: &Operator,
        event: &Arc<Event>,
        based_on: Option<i64>,
        changes: Map<String, Value>,
    ) -> Result<Decided, Error> {
        let change =
            move |before: &Control| Ok(Control { overrides: before.overrides.changed(&changes)?, ..before.clone() });
        self.decide(who, event, "policy", based_on, change).await
    }

    /// Pauses, resumes, closes or reopens a sale.
    pub async fn act(&self, who: &Operator, event: &Arc<Event>, act: Act) -> Result<Decided, Error> {
        let act = match act {
            Act::Pause(reason) => Act::Pause(reason.map(Reason::check).transpose()?),
            act => act,
        };
        self.decide(who, event, act.word(), None, move |before: &Control| before.after(act)).await
    }

    async fn decide(
        &self,
        who: &Operator,
        event: &Arc<Event>,
        action: &'static str,
        based_on: Option<i64>,
        change: impl FnOnce(&Control) -> Result<Control, Error> + Send + 'static,
    ) -> Result<Decided, Error> {
        let decision = Decision { who: who.name.clone(), action, based_on, change: Box::new(change) };
        let decided = self.controls.decide(event, decision).await?;
        // Own writes are seen: what this server shows next has it.
        if decided.in_force
            && let Err(error) = self.views.fresh(event).await
        {
            tracing::debug!(%error, "shown with the next snapshot");
        }
        Ok(decided)
    }

    /// Ends a place or a pass. Returns whether there was one to end. First the entry in the audit log: what happens is never
    /// without one. If it then fails, another entry says so.
    pub async fn kick(&self, who: &Operator, lane: &Lane, event: &Arc<Event>, token: Token) -> Result<bool, Error> {
        let snapshot = self.views.fresh(event).await?;
        let status = match snapshot.standing(token.place()) {
            Standing::Over => return Ok(false),
            Standing::Active { .. } => "ACTIVE",
            Standing::Waiting { .. } | Standing::SoldOut => "WAITING",
        };
        // The token itself is nobody else's business.
        let mut had = json!({ "place": token.place().0, "status": status });
        let seats: Vec<SeatNumber> = snapshot.seats.held_by(token.place()).into_iter().collect();
        if let Some(had) = had.as_object_mut().filter(|_| !seats.is_empty()) {
            had.insert("seats".to_owned(), json!(seats));
        }
        self.note(who, "kick", event.id, had.clone()).await?;
        match self.line.leave(lane, event, token).await {
            Ok(()) => Ok(true),
            Err(error) => {
                self.note(who, "kick failed", event.id, had).await?;
                Err(error)
            }
        }
    }

    async fn note(&self, who: &Operator, action: &'static str, event: EventId, before: Value) -> Result<(), Error> {
        let entry = Entry { who: who.name.clone(), action, event: Some(event), before: Some(before), after: None };
        self.stores.query(move |conn| async move { db::audit_log::write(conn, &entry).await }.boxed()).await
    }

    /// Takes a ticket back for the house, also after the deadline.
    pub async fn cancel(&self, who: &Operator, ticket: TicketId, why: &str) -> Result<Ticket, Error> {
        let why = why.trim();
        if why.is_empty() || why.chars().count() > LONGEST_WHY || why.chars().any(char::is_control) {
            return Err(Error::InvalidRequest(format!("why is one line of 1 to {LONGEST_WHY} letters.")));
        }
        self.tickets.take_back(&who.name, ticket, why).await
    }

    /// Tickets by their number, by the number or exact name of their buyer, or by the label of a seat of an event.
    pub async fn find_tickets(&self, wanted: &str, event: Option<EventId>) -> Result<Vec<Found>, Error> {
        let wanted = wanted.trim();
        // No name or label has them, and PostgreSQL does not take every one.
        if wanted.chars().any(char::is_control) {
            return Ok(Vec::new());
        }
        if let Ok(number) = wanted.parse::<TicketId>() {
            if let Some((ticket, person)) = self.tickets.look_up(number).await? {
                return Ok(vec![Found { ticket, person }]);
            }
            return self.tickets_of(PersonId(number.0)).await;
        }
        if let Some(event) = event {
            let event = self.catalogue.get(event).await?;
            let labelled = event.seats.iter().position(|seat| seat.label.eq_ignore_ascii_case(wanted));
            let Some(seat) = labelled.map(SeatNumber::at) else { return Ok(Vec::new()) };
            let found = self.tickets.of_seat(event.id, seat).await?;
            return Ok(found.map(|(ticket, person)| Found { ticket, person }).into_iter().collect());
        }
        let name = wanted.to_owned();
        let people = self
            .stores
            .query(move |conn| async move { db::people::by_name(conn, &name, MOST_NAMESAKES).await }.boxed())
            .await?;
        let mut found = Vec::new();
        for person in people {
            found.extend(self.tickets_of(PersonId(person)).await?);
        }
        Ok(found)
    }

    async fn tickets_of(&self, person: PersonId) -> Result<Vec<Found>, Error> {
        let tickets = self.tickets.of_person(person, &Page::after(None)).await?;
        Ok(tickets.items.into_iter().map(|ticket| Found { ticket, person: Some(person) }).collect())
    }

    /// What operators did, newest first; to one event, or at all.
    pub async fn audit(&self, event: Option<EventId>, page: &Page) -> Result<PageOf<Done>, Error> {
        let (cursor, most) = (page.from(i64::MAX)?, page.most());
        let rows = self.stores.query(move |conn| db::audit_log::read(conn, event, cursor, most).boxed()).await?;
        let done = |row: EntryRow| Done {
            id: row.id,
            at: row.at,
            who: row.who,
            action: row.action,
            event: row.event_id,
            before: row.before,
            after: row.after,
        };
        Ok(page.of(rows.into_iter().map(done).collect(), |done: &Done| done.id.to_string()))
    }
}

fn figures(event: &Event, snapshot: &Snapshot) -> Figures {
    let meta = &snapshot.meta;
    let sold = event.seats.iter().zip(&snapshot.seats.states).filter(|(_, state)| **state == SeatState::Sold);
    Figures {
        seats: meta.seats,
        waiting: meta.waiting,
        absent: meta.absent.min(meta.waiting),
        inside: snapshot.passes.len() as u64,
        held: snapshot.seats.count(SeatState::Held),
        sold: meta.sold,
        left: meta.seats.saturating_sub(meta.sold),
        available: snapshot.seats.available,
        revenue: sold.map(|(seat, _)| seat.price).sum(),
        entered: meta.counter("entered"),
        admitted: meta.counter("admitted"),
        swept: meta.counter("swept"),
        gave_up: meta.counter("left"),
        overdue: meta.counter("overdue"),
        refused: None,
    }
}
