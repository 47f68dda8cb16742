//! One page in a browser: what a visitor sees, clicks and types.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};

use crate::browser::{Link, PATIENCE};

pub struct Tab {
    session: String,
    link: Link,
}

impl Tab {
    pub(crate) fn new(session: &str, link: Link) -> Self {
        Self { session: session.to_owned(), link }
    }

    pub async fn call(&self, method: &str, params: Value) -> Value {
        self.link.call(Some(&self.session), method, params).await
    }

    pub async fn size(&self, width: u32, height: u32, phone: bool) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone });
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    pub async fn dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    pub async fn without_javascript(&self) {
        self.call("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    }

    /// Loads a page and waits until it is there.
    pub async fn open(&self, url: &str) {
        let mark = self.eval("performance.timeOrigin").await;
        self.call("Page.navigate", json!({ "url": url })).await;
        self.until(&format!("performance.timeOrigin !== {mark} && document.readyState === 'complete'")).await;
    }

    pub async fn reload(&self) {
        let mark = self.eval("performance.timeOrigin").await;
        self.call("Page.reload", json!({})).await;
        self.until(&format!("performance.timeOrigin !== {mark} && document.readyState === 'complete'")).await;
    }

    /// The value of an expression. Asks again if the page changes before the answer.
    pub async fn eval(&self, expression: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
            match self.link.try_call(Some(&self.session), "Runtime.evaluate", params).await {
                Ok(answer) => {
                    if let Some(problem) = answer.get("exceptionDetails") {
                        panic!("{expression}: {problem}");
                    }
                    return answer["result"]["value"].clone();
                }
                Err(error) => assert!(Instant::now() < deadline, "{expression}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until an expression is true.
    pub async fn until(&self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.eval(&format!("Boolean({expression})")).await != true {
            if Instant::now() > deadline {
                let seen = self.eval("location.href + '\\n' + document.body.innerText").await;
                panic!("not within {PATIENCE:?}: {expression}; the page is {seen}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for an element.
    pub async fn sees(&self, selector: &str) {
        self.until(&format!("document.querySelector({})", json!(selector))).await;
    }

    /// Waits for a text on the page.
    pub async fn reads(&self, text: &str) {
        self.until(&format!("document.body && document.body.innerText.includes({})", json!(text))).await;
    }

    pub async fn text(&self, selector: &str) -> String {
        let text = self.eval(&format!("document.querySelector({}).textContent", json!(selector))).await;
        text.as_str().unwrap().trim().to_owned()
    }

    /// Where the tab is, without the address of the server.
    pub async fn path(&self) -> String {
        self.eval("location.pathname").await.as_str().unwrap().to_owned()
    }

    /// Waits until the tab is at a path with this start.
    pub async fn at(&self, path: &str) {
        let there = format!("location.pathname.startsWith({}) && document.readyState === 'complete'", json!(path));
        self.until(&there).await;
    }

    /// Clicks in the middle of an element with the mouse.
    pub async fn click(&self, selector: &str) {
        self.click_times(selector, 1).await;
    }

    pub async fn click_times(&self, selector: &str, times: u32) {
        self.sees(selector).await;
        let place = format!(
            "(() => {{ const e = document.querySelector({}); e.scrollIntoView({{ block: 'center', inline: 'center' }});
             const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; }})()",
            json!(selector)
        );
        let at = self.eval(&place).await;
        for count in 1..=times {
            for kind in ["mousePressed", "mouseReleased"] {
                let event = json!({ "type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": count });
                self.call("Input.dispatchMouseEvent", event).await;
            }
        }
    }

    /// Types into whatever has the focus.
    pub async fn write(&self, text: &str) {
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// Replaces the text of a field.
    pub async fn fill(&self, selector: &str, text: &str) {
        self.sees(selector).await;
        self.eval(&format!("document.querySelector({}).select()", json!(selector))).await;
        self.eval(&format!("document.querySelector({}).focus()", json!(selector))).await;
        self.write(text).await;
    }

    pub async fn press(&self, key: &str) {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            " " => 32,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => panic!("no code for {key}"),
        };
        let text = match key {
            "Enter" => "\r",
            " " => " ",
            _ => "",
        };
        let mut down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if !text.is_empty() {
            down["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", down).await;
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }))
            .await;
    }

    /// Presses the tab key until this element has the focus.
    pub async fn tab_to(&self, selector: &str) {
        for _ in 0..200 {
            let there = self.eval(&format!("document.activeElement.matches({})", json!(selector))).await;
            if there == true {
                return;
            }
            self.press("Tab").await;
        }
        panic!("the tab key does not reach {selector}");
    }

    /// A picture of the page, or of one element.
    pub async fn picture(&self, selector: Option<&str>) -> Vec<u8> {
        let mut params = json!({ "format": "png", "captureBeyondViewport": selector.is_some() });
        if let Some(selector) = selector {
            let place = format!(
                "(() => {{ const b = document.querySelector({}).getBoundingClientRect();
                 return [b.left + scrollX, b.top + scrollY, b.width, b.height]; }})()",
                json!(selector)
            );
            let at = self.eval(&place).await;
            params["clip"] = json!({ "x": at[0], "y": at[1], "width": at[2], "height": at[3], "scale": 2 });
        }
        let picture = self.call("Page.captureScreenshot", params).await;
        base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
    }

    /// Keeps a picture for people to look at, if ZT_SHOTS names a folder.
    pub async fn shot(&self, name: &str) {
        if let Ok(folder) = std::env::var("ZT_SHOTS") {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(Path::new(&folder).join(format!("{name}.png")), self.picture(None).await).unwrap();
        }
    }

    /// Errors on the console, and requests to any other server.
    pub fn complaints(&self, server: &str) -> Vec<String> {
        let heard = self.link.heard.lock().unwrap();
        let mine = heard.iter().filter(|event| event["sessionId"] == self.session.as_str());
        mine.filter_map(|event| {
            let params = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" if params["type"] == "error" => Some(params["args"].to_string()),
                "Log.entryAdded" if params["entry"]["level"] == "error" => Some(params["entry"]["text"].to_string()),
                "Network.requestWillBeSent" => {
                    let url = params["request"]["url"].as_str()?;
                    let known = url.starts_with(server) || url.starts_with("data:") || url == "about:blank";
                    (!known).then(|| format!("a request to {url}"))
                }
                _ => None,
            }
        })
        .collect()
    }
}
