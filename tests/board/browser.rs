//! A browser without a window.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::error::CmdError;
use fantoccini::key::Key;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use redlock_tests::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use url::{ParseError, Url};

use crate::SOON;

/// A browser with its driver. They end when it is dropped.
pub(crate) struct Browser {
    pub(crate) client: Client,
    _driver: Child,
}

/// A command of the driver that WebDriver does not have.
#[derive(Debug)]
struct Extra {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Extra {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}

impl Browser {
    /// Starts a browser. Returns the reason if this machine has none.
    pub(crate) async fn start() -> Result<Self, String> {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("chromedriver: {error}"))?;
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = loop {
            let line = lines.next_line().await.unwrap().ok_or("chromedriver has ended")?;
            let port = line.split_once("started successfully on port ");
            if let Some((_, port)) = port {
                break port.trim_end_matches('.').to_owned();
            }
        };
        // The driver writes more lines.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        // With the pipe, the browser ends with its driver, however that ends.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--remote-debugging-pipe",
            "--window-size=1100,900",
        ];
        let wanted = json!({
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(wanted) = wanted else { unreachable!() };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let address = format!("http://127.0.0.1:{port}");
        let client = builder.capabilities(wanted).connect(&address).await;
        let client = client.map_err(|error| format!("chromium: {error}"))?;
        Ok(Self { client, _driver: driver })
    }

    /// Waits until an element has a text that the condition accepts. Returns the text.
    pub(crate) async fn reads(&self, id: &str, is_it: impl Fn(&str) -> bool) -> String {
        let text = async || {
            let text = self.find(id).await.text().await.ok()?;
            is_it(&text).then_some(text)
        };
        eventually(&format!("the text of {id}"), SOON, text).await
    }

    pub(crate) async fn find(&self, id: &str) -> Element {
        self.client.find(Locator::Id(id)).await.unwrap()
    }

    pub(crate) async fn click(&self, selector: &str) {
        self.client.find(Locator::Css(selector)).await.unwrap().click().await.unwrap();
    }

    /// Returns what a script finds in the page.
    pub(crate) async fn faults(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    /// Presses keys in the element that has the focus.
    pub(crate) async fn press(&self, keys: &str) {
        self.client.active_element().await.unwrap().send_keys(keys).await.unwrap();
    }

    /// Asks for a key in the field, by the keyboard alone.
    pub(crate) async fn ask(&self, key: &str) {
        let field = self.find("key").await;
        field.clear().await.unwrap();
        field.send_keys(&format!("{key}{}", Key::Enter)).await.unwrap();
    }

    /// Returns the text of the element that has the focus.
    pub(crate) async fn focused(&self) -> String {
        self.client.active_element().await.unwrap().text().await.unwrap()
    }

    /// Returns what the console has got since the last call.
    pub(crate) async fn console(&self) -> Vec<String> {
        let log = self.extra("se/log", json!({ "type": "browser" })).await.unwrap();
        let lines = log.as_array().unwrap().iter();
        lines.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Sets the width of the window, and whether the user prefers dark pages.
    pub(crate) async fn show(&self, width: u32, scheme: &str) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 2, "mobile": width < 500 });
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        for (command, parameters) in
            [("Emulation.setDeviceMetricsOverride", size), ("Emulation.setEmulatedMedia", media)]
        {
            let body = json!({ "cmd": command, "params": parameters });
            self.extra("goog/cdp/execute", body).await.unwrap();
        }
    }

    /// Writes a picture of the page into the folder in `REDLOCK_PICTURES`, if it is set.
    pub(crate) async fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("REDLOCK_PICTURES") else { return };
        let picture = self.client.screenshot().await.unwrap();
        std::fs::write(PathBuf::from(folder).join(format!("{name}.png")), picture).unwrap();
    }

    async fn extra(&self, path: &'static str, body: Value) -> Result<Value, CmdError> {
        self.client.issue_cmd(Extra { path, body }).await
    }

    /// Ends the browser in order.
    pub(crate) async fn close(self) {
        let ended = tokio::time::timeout(Duration::from_secs(20), self.client.close()).await;
        ended.unwrap().unwrap();
    }
}
