//! Where a stage keeps what it knows of each event.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::base::ids::EventId;

/// One value for each event, made when first asked for.
pub struct PerEvent<T>(RwLock<HashMap<EventId, Arc<T>>>);

impl<T> Default for PerEvent<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Default> PerEvent<T> {
    pub fn of(&self, event: EventId) -> Arc<T> {
        if let Some(value) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&event) {
            return value.clone();
        }
        self.0.write().unwrap_or_else(PoisonError::into_inner).entry(event).or_default().clone()
    }
}
