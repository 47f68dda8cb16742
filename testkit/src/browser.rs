//! A real Chromium, driven by its own protocol. Each visitor is a browser context with its own cookies and storage.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::tungstenite::Message;

use crate::{Process, Tab, eventually};

/// What Chromium needs to run headless, quietly, and without calling anyone.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
];
/// Generous: a check of a long page takes a loaded machine half a minute.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Calls without an answer yet, by number.
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;
/// Events nobody asked for: what happened in the tabs.
type Heard = Arc<Mutex<Vec<Value>>>;

pub struct Browser {
    _process: Process,
    _profile: TempDir,
    link: Link,
}

#[derive(Clone)]
pub(crate) struct Link {
    next: Arc<AtomicU64>,
    send: mpsc::UnboundedSender<String>,
    waiting: Waiting,
    pub(crate) heard: Heard,
}

impl Browser {
    /// Its profile is made in this folder.
    pub async fn start(profiles: &Path) -> Self {
        let program = std::env::var("ZT_CHROMIUM")
            .expect("ZT_CHROMIUM is not set: run browser tests with `make test`, which finds or installs a Chromium");
        let profile = tempfile::tempdir_in(profiles).unwrap();
        let mut command = Command::new(program);
        command.args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        let process = Process::start("Chromium", command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
        let address = eventually("Chromium listens", async || {
            let file = std::fs::read_to_string(profile.path().join("DevToolsActivePort")).ok()?;
            let (port, path) = file.split_once('\n')?;
            Some(format!("ws://127.0.0.1:{port}{}", path.trim()))
        })
        .await;
        Self { link: Link::open(&address).await, _process: process, _profile: profile }
    }

    /// A visitor with a browser of their own, who reads this language.
    pub async fn visitor(&self, lang: &str) -> Tab {
        let context = self.link.call(None, "Target.createBrowserContext", json!({})).await;
        self.tab_in(context["browserContextId"].as_str().unwrap(), lang).await
    }

    async fn tab_in(&self, context: &str, lang: &str) -> Tab {
        let target = self
            .link
            .call(None, "Target.createTarget", json!({ "url": "about:blank", "browserContextId": context }))
            .await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.link.call(None, "Target.attachToTarget", attach).await;
        let tab = Tab::new(session["sessionId"].as_str().unwrap(), self.link.clone());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), json!({})).await;
        }
        tab.call("Network.setExtraHTTPHeaders", json!({ "headers": { "Accept-Language": lang } })).await;
        tab.size(1280, 900, false).await;
        tab
    }
}

impl Link {
    async fn open(address: &str) -> Self {
        let (socket, _) = tokio_tungstenite::connect_async(address).await.unwrap();
        let (mut write, mut read) = socket.split();
        let (send, mut to_send) = mpsc::unbounded_channel::<String>();
        let link = Self { next: Arc::default(), send, waiting: Waiting::default(), heard: Heard::default() };
        tokio::spawn(async move {
            while let Some(text) = to_send.recv().await {
                if write.send(Message::text(text)).await.is_err() {
                    break;
                }
            }
        });
        let (answers, events) = (link.waiting.clone(), link.heard.clone());
        tokio::spawn(async move {
            while let Some(Ok(message)) = read.next().await {
                let Ok(text) = message.into_text() else { continue };
                let Ok(value) = serde_json::from_str::<Value>(&text) else { continue };
                match value["id"].as_u64() {
                    Some(id) => {
                        if let Some(answer) = answers.lock().unwrap().remove(&id) {
                            let _ = answer.send(value);
                        }
                    }
                    None => events.lock().unwrap().push(value),
                }
            }
        });
        link
    }

    pub(crate) async fn call(&self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.try_call(session, method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    pub(crate) async fn try_call(&self, session: Option<&str>, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id, answer);
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.send.send(message.to_string()).unwrap();
        let answer = tokio::time::timeout(PATIENCE, answered).await;
        let answer = answer.unwrap_or_else(|_| panic!("{method}: no answer")).unwrap();
        match answer.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(answer["result"].clone()),
        }
    }
}
