//! Server-sent events, as a browser reads them.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;

use super::{TestApp, Visitor};

/// An open stream, read an event at a time.
pub struct Stream {
    bytes: futures_util::stream::BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    text: String,
}

impl Stream {
    /// Of a visitor's token.
    pub async fn open(app: &TestApp, visitor: &Visitor) -> Self {
        Self::at(app, &format!("/api/queues/tokens/{}/events", visitor.0)).await
    }

    pub async fn at(app: &TestApp, path: &str) -> Self {
        let url = app.url(path);
        let response = app.client.get(url).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        Self { bytes: response.bytes_stream().boxed(), text: String::new() }
    }

    /// Name and data of the next event; `None` when the stream ends.
    pub async fn next(&mut self) -> Option<(String, Value)> {
        let read = async {
            loop {
                if let Some((event, rest)) = self.text.split_once("\n\n") {
                    let (event, rest) = (event.to_owned(), rest.to_owned());
                    self.text = rest;
                    if let Some((name, data)) = event.split_once('\n').filter(|_| !event.starts_with(':')) {
                        let name = name.strip_prefix("event: ").unwrap().to_owned();
                        let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                        return Some((name, data));
                    }
                    continue;
                }
                let bytes = self.bytes.next().await?.ok()?;
                self.text.push_str(std::str::from_utf8(&bytes).unwrap());
            }
        };
        tokio::time::timeout(Duration::from_secs(20), read).await.expect("an event within 20 seconds")
    }
}
