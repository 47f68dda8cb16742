//! What operators decide about a sale while it runs: whether people are let in, and settings other than the configured ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::base::error::Error;
use crate::base::policy::{Policy, SETTINGS, Setting};

const LONGEST_REASON: usize = 200;

/// Whether an operator lets people in. Closed: nobody joins any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SaleState)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    #[default]
    Open,
    Paused,
    Closed,
}

impl State {
    /// As the stores have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Closed => "closed",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Open, Self::Paused, Self::Closed].into_iter().find(|state| state.word() == word)
    }
}

/// What visitors read about a pause, in the languages that pages speak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// One line.
    #[schema(min_length = 1, max_length = 200, example = "밴드가 늦어요.")]
    pub ko: String,
    /// One line.
    #[schema(min_length = 1, max_length = 200, example = "The band is late.")]
    pub en: String,
}

impl Reason {
    /// Trimmed, and refused if a language is missing or too long.
    pub fn check(self) -> Result<Self, Error> {
        let reason = Self { ko: self.ko.trim().to_owned(), en: self.en.trim().to_owned() };
        for (language, text) in [("ko", &reason.ko), ("en", &reason.en)] {
            let fits = (1..=LONGEST_REASON).contains(&text.chars().count()) && !text.chars().any(char::is_control);
            if !fits {
                return Err(Error::InvalidRequest(format!(
                    "reason.{language} is one line of 1 to {LONGEST_REASON} letters."
                )));
            }
        }
        Ok(reason)
    }

    /// As Redis has it; without a reason nothing.
    pub fn text(reason: Option<&Self>) -> String {
        reason.and_then(|reason| serde_json::to_string(reason).ok()).unwrap_or_default()
    }

    /// From Redis. Servers of an earlier version wrote one text for all languages.
    pub fn from_text(text: &str) -> Option<Self> {
        let one_for_all = || Self { ko: text.to_owned(), en: text.to_owned() };
        (!text.is_empty()).then(|| serde_json::from_str(text).unwrap_or_else(|_| one_for_all()))
    }
}

/// Settings that differ from the configuration, by their names and in their units outside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Overrides(BTreeMap<String, u64>);

impl Overrides {
    /// With these settings changed; null puts one back to the configuration.
    pub fn changed(&self, changes: &Map<String, Value>) -> Result<Self, Error> {
        let mut overrides = self.0.clone();
        for (name, value) in changes {
            let setting = Setting::named(name)?;
            if value.is_null() {
                overrides.remove(name);
            } else {
                overrides.insert(name.clone(), setting.check(value)?);
            }
        }
        Ok(Self(overrides))
    }

    /// The settings in force where a server is configured like this.
    pub fn over(&self, configured: &Policy) -> Policy {
        let mut policy = configured.clone();
        for setting in &SETTINGS {
            if let Some(value) = self.0.get(setting.name) {
                setting.set(&mut policy, *value);
            }
        }
        policy
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Everything that operators decided about one event. The database counts its versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Control {
    /// 0: nothing yet.
    pub version: i64,
    pub state: State,
    pub reason: Option<Reason>,
    pub overrides: Overrides,
    /// Of a closed sale: whether it was paused before, and is so again when it is reopened.
    pub was_paused: bool,
}

/// What an operator does about letting people in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Pause(Option<Reason>),
    Resume,
    Close,
    Reopen,
}

impl Act {
    /// Why an act was refused.
    pub const CLOSED: &str = "The sale is closed. Reopen it first.";
    pub const PAUSED: &str = "The sale is paused, not closed. Resume it.";

    /// As the audit log calls it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pause(_) => "pause",
            Self::Resume => "resume",
            Self::Close => "close",
            Self::Reopen => "reopen",
        }
    }
}

impl Control {
    /// Servers of an earlier version reopen a sale and leave the note as it is.
    fn was_closed_while_paused(&self) -> bool {
        self.state == State::Closed && self.was_paused
    }

    /// After this act. Somebody whose page is old must not undo what another decided since.
    pub fn after(&self, act: Act) -> Result<Self, Error> {
        let refuse = |why: &str| Err(Error::InvalidPolicy(why.to_owned()));
        let paused = self.state == State::Paused;
        let (state, reason, was_paused) = match act {
            Act::Pause(_) | Act::Resume if self.state == State::Closed => return refuse(Act::CLOSED),
            Act::Reopen if paused => return refuse(Act::PAUSED),
            Act::Pause(reason) => (State::Paused, reason, false),
            Act::Close => (State::Closed, self.reason.clone(), paused || self.was_closed_while_paused()),
            Act::Reopen if self.was_closed_while_paused() => (State::Paused, self.reason.clone(), false),
            Act::Resume | Act::Reopen => (State::Open, None, false),
        };
        Ok(Self { state, reason, was_paused, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn changes(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_sale_that_was_paused_when_it_was_closed_is_paused_when_it_is_reopened() {
        let reason = Some(Reason { ko: "잠시만요.".to_owned(), en: "One moment.".to_owned() });
        let paused = Control::default().after(Act::Pause(reason)).unwrap();
        let closed = paused.after(Act::Close).unwrap().after(Act::Close).unwrap();
        assert_eq!((closed.state, closed.after(Act::Reopen).unwrap()), (State::Closed, paused.clone()));
        assert!(closed.after(Act::Resume).is_err() && closed.after(Act::Pause(None)).is_err());
        assert!(paused.after(Act::Reopen).is_err());
        let open = paused.after(Act::Resume).unwrap();
        assert_eq!(open, Control::default());
        assert_eq!(open.after(Act::Close).unwrap().after(Act::Reopen).unwrap(), open);
    }

    #[test]
    fn changes_add_up_and_null_takes_one_back() {
        let first = Overrides::default().changed(&changes(json!({ "batch": 5, "holdTtlSeconds": 60 }))).unwrap();
        let second = first.changed(&changes(json!({ "batch": null, "maxActive": 7 }))).unwrap();
        let policy = second.over(&Policy::default());
        assert_eq!((policy.batch, policy.max_active, policy.hold_ttl_ms), (200, 7, 60_000));
        assert_eq!(second.names().collect::<Vec<_>>(), ["holdTtlSeconds", "maxActive"]);
    }

    #[test]
    fn a_reason_has_both_languages_and_reads_back() {
        let reason = |ko: &str, en: &str| Reason { ko: ko.to_owned(), en: en.to_owned() }.check();
        let good = reason(" 잠시만요 ", "One \"moment\"").unwrap();
        assert_eq!(good.ko, "잠시만요");
        assert_eq!(Reason::from_text(&Reason::text(Some(&good))), Some(good));
        assert_eq!(Reason::from_text(&Reason::text(None)), None);
        assert_eq!(Reason::from_text("Back soon.").unwrap().ko, "Back soon.");
        for (ko, en) in [("", "x"), ("x", " "), ("x", "a\nb"), (&"x".repeat(201), "x")] {
            assert!(reason(ko, en).is_err());
        }
    }

    proptest! {
        #[test]
        fn a_reason_survives_redis(ko in r"\PC{1,200}", en in r"\PC{1,200}") {
            if let Ok(reason) = (Reason { ko, en }).check() {
                let text = Reason::text(Some(&reason));
                prop_assert!(text.len() <= 4000, "Redis takes it");
                prop_assert_eq!(Reason::from_text(&text), Some(reason));
            }
        }
    }
}
