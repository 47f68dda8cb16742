//! The sale in a real Chromium, as people do it: with a mouse, with a keyboard, without JavaScript, in two languages.

mod console;
mod everyone;
mod sale;

use std::path::Path;

use zticket::base::ids::EventId;
use zticket::server::config::Config;
use zticket::server::run::Background;
use zticket_testkit::{Browser, Tab};

use crate::support::TestApp;
use crate::support::set_live;

pub struct House {
    app: TestApp,
    browser: Browser,
    tabs: std::sync::Mutex<Vec<Vec<String>>>,
}

/// A server and a browser.
async fn house(change: impl FnOnce(&mut Config)) -> House {
    let browser = Browser::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).await;
    let app = TestApp::start_with(Background::Running, change).await;
    House { app, browser, tabs: std::sync::Mutex::default() }
}

impl House {
    async fn visitor(&self) -> Tab {
        self.browser.visitor("en").await
    }

    async fn go(&self, tab: &Tab, path: &str) {
        tab.open(&self.app.url(path)).await;
    }

    async fn set(&self, event: u32, changes: &[(&str, &str)]) {
        let keys = zticket::store::redis::keys::Keys::new(EventId::new(event).unwrap());
        let mut conn = self.app.redis.connect().await.unwrap();
        set_live(&self.app.parts().stores.scripts, &mut conn, &keys, changes).await;
    }

    /// No error on the console, no request to anyone else.
    fn quiet(&self, tab: &Tab) {
        self.tabs.lock().unwrap().push(tab.complaints(&self.app.url("")));
    }

    async fn finish(self) {
        drop(self.browser);
        for complaints in self.tabs.into_inner().unwrap() {
            assert_eq!(complaints, Vec::<String>::new());
        }
        self.app.finish().await;
    }
}
