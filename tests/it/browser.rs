//! The sale in a real Chromium, as people do it: with a mouse, with a keyboard, without JavaScript, in two languages.

mod console;
mod everyone;
mod sale;

use std::path::Path;

use serde_json::json;
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

/// axe-core finds nothing on the page against WCAG 2.2 AA, light or dark.
async fn accessible(tab: &Tab, name: &str) {
    let axe = std::fs::read_to_string(std::env::var("ZT_AXE").unwrap()).unwrap();
    tab.call("Page.setBypassCSP", json!({ "enabled": true })).await;
    for dark in [false, true] {
        tab.dark(dark).await;
        // Wait until colours stop fading: half-way they are nobody's choice.
        tab.until("document.getAnimations().every(animation => animation.playState === 'finished')").await;
        tab.shot(&format!("axe-{name}-{}", if dark { "dark" } else { "light" })).await;
        tab.eval(&axe).await;
        let run = "axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] })
            .then(r => r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html.slice(0, 160)).slice(0, 3).join(' | ')))";
        assert_eq!(tab.eval(run).await, json!([]), "{name}, dark: {dark}");
    }
    tab.dark(false).await;
}
