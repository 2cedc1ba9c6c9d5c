//! `redlock nodes`: checks the nodes before a deployment.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use redlock_core::node::{Effect, NodeStatus, ServerReport};
use redlock_core::{
    ConnectError, LockManager, LockManagerConfig, LockStatus, NodeSnapshot, Vote, Votes,
};
use serde_json::{Value, json};

use crate::arguments::NodesArguments;
use crate::failure::{Failure, NO};
use crate::output::{Colour, Paint, Table, cell, print, print_json, short};

/// A key that no program locks. A look at it measures the round trip of each node.
const KEY: &str = "redlock-nodes";

pub(crate) async fn run(
    config: &LockManagerConfig,
    arguments: &NodesArguments,
) -> Result<ExitCode, Failure> {
    let check = match config.connect().await {
        Ok(locks) => Check::of(&locks).await,
        Err(ConnectError::Unavailable { votes, .. }) => Check::without_quorum(&votes),
        Err(error) => return Err(Failure::new(error)),
    };
    if arguments.json {
        print_json(&check.json)?;
    } else {
        print(&check.text(Paint::of_stdout()))?;
    }
    Ok(if check.problems == 0 { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// The nodes, and the findings about them.
struct Check {
    table: Table,
    findings: Vec<(Effect, String)>,
    nodes: usize,
    /// How many findings may cost a guarantee.
    problems: usize,
    json: Value,
}

impl Check {
    async fn of(locks: &LockManager) -> Self {
        let status = locks.status(KEY).await;
        let took = |name: &str| {
            let nodes = status.as_ref().map(LockStatus::nodes).unwrap_or_default();
            nodes.iter().find(|node| node.name() == name)?.took()
        };
        let nodes = locks.snapshot().nodes;
        let mut check = Self::new(nodes.len());
        let mut all = Vec::new();
        for node in &nodes {
            let round_trip = took(&node.name);
            check.add(node, round_trip);
            let mut json = json!(node);
            json["round_trip_us"] =
                json!(round_trip.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)));
            all.push(json);
        }
        check.end(&all)
    }

    fn without_quorum(votes: &Votes) -> Self {
        let mut check = Self::new(votes.len());
        let mut all = Vec::new();
        for (name, vote) in votes.iter() {
            let (status, reason) = match vote {
                Some(Vote::Agreed) => ("up", None),
                Some(Vote::Failed(reason)) => ("down", Some(reason.to_string())),
                _ => ("connecting", None),
            };
            check.table.row([name, name, status, "-", "-", "-"].map(str::to_owned));
            if let Some(reason) = &reason {
                check.find(Effect::Guarantee, format!("{name}: {reason}"));
            }
            all.push(json!({"name": name, "status": status, "reason": reason}));
        }
        check.find(Effect::Guarantee, "no quorum of nodes is up: no lock is granted".to_owned());
        check.end(&all)
    }

    fn new(nodes: usize) -> Self {
        let table = Table::new(["NODE", "SERVER", "STATUS", "PRODUCT", "ROUND TRIP", "CLOCK"]);
        Self { table, findings: Vec::new(), nodes, problems: 0, json: Value::Null }
    }

    fn find(&mut self, effect: Effect, text: String) {
        self.problems += usize::from(effect == Effect::Guarantee);
        self.findings.push((effect, text));
    }

    fn add(&mut self, node: &NodeSnapshot, round_trip: Option<Duration>) {
        let NodeSnapshot { name, status, report, .. } = node;
        let status = match (status, &report.quarantine) {
            (NodeStatus::Up, None) => "up",
            (NodeStatus::Up, Some(_)) => "no votes",
            (NodeStatus::Down(_), _) => "down",
            _ => "connecting",
        };
        let round_trip = cell(round_trip.map(short));
        for server in &report.servers {
            let product = server
                .product
                .map(|product| format!("{product} {}", server.version.as_deref().unwrap_or("")));
            let product = cell(product.as_deref().map(str::trim_end));
            let status = if server.is_connected || status != "up" { status } else { "down" };
            self.table.row([
                name.clone(),
                server.address.clone(),
                status.to_owned(),
                product,
                round_trip.clone(),
                clock(server),
            ]);
        }
        if report.servers.is_empty() {
            let empty = || "-".to_owned();
            self.table.row([
                name.clone(),
                empty(),
                status.to_owned(),
                empty(),
                round_trip,
                empty(),
            ]);
        }
        match &node.status {
            NodeStatus::Up => {}
            NodeStatus::Down(reason) => self.find(Effect::Guarantee, format!("{name}: {reason}")),
            _ => self.find(Effect::Guarantee, format!("{name}: no answer yet")),
        }
        if let Some(reason) = &report.quarantine {
            self.find(Effect::Guarantee, format!("{name}: its votes do not count: {reason}"));
        }
        for finding in &report.findings {
            self.find(finding.effect, format!("{}: {}", finding.server, finding.text));
        }
        for server in
            report.servers.iter().filter(|server| !server.is_connected && node.status.is_up())
        {
            self.find(
                Effect::Guarantee,
                format!("{}: there is no connection to the server", server.address),
            );
        }
    }

    fn end(mut self, nodes: &[Value]) -> Self {
        if self.nodes.is_multiple_of(2) {
            let text = format!(
                "{} nodes survive no more losses than {} would; use an odd number",
                self.nodes,
                self.nodes - 1
            );
            self.find(Effect::Convenience, text);
        }
        self.findings.sort_by_key(|(effect, _)| *effect);
        self.json = json!({"sound": self.problems == 0, "nodes": nodes});
        self
    }

    fn text(&self, paint: Paint) -> String {
        let mut text = self.table.to_string();
        if !self.findings.is_empty() {
            text.push('\n');
        }
        for (effect, finding) in &self.findings {
            let (colour, word) = match effect {
                Effect::Guarantee => (Colour::Red, "problem"),
                Effect::Unknown => (Colour::Yellow, "unknown"),
                _ => (Colour::Yellow, "note   "),
            };
            let _ = writeln!(text, "{}  {finding}", paint.text(colour, word));
        }
        let summary = match self.problems {
            0 => paint.text(Colour::Green, "sound: nothing that was checked costs a guarantee"),
            1 => paint.text(Colour::Red, "not sound: 1 problem"),
            problems => paint.text(Colour::Red, format_args!("not sound: {problems} problems")),
        };
        let _ = writeln!(text, "\n{summary}");
        text
    }
}

fn clock(server: &ServerReport) -> String {
    cell(server.clock_offset_ms.map(|offset| format!("{offset:+}ms")))
}
