//! The description of a server for its operator.

use super::connection::Connection;
use super::identity::Identity;
use super::rights::MissingRight;
use super::{Inner, Role};
use crate::node::{Effect, Finding, ServerReport};

impl Inner {
    /// Describes the server. Adds what its operator should know to the findings.
    pub(crate) fn describe(&self, findings: &mut Vec<Finding>) -> ServerReport {
        let address = self.endpoint.name();
        let connection = self.connection();
        let mut report = ServerReport::new(&**address, connection.is_ok());
        let Ok(connection) = connection else { return report };
        if let Some((product, version)) = &connection.identity.product {
            (report.product, report.version) = (Some(*product), Some(version.clone()));
        }
        let clock = &*self.settings.node.clock;
        report.clock_offset_ms = self.last_reading.lock().map(|reading| reading.offset_ms(clock));
        let found = self.findings(&connection);
        findings.extend(
            found
                .into_iter()
                .map(|(kind, effect, text)| Finding::new(kind, effect, &**address, text)),
        );
        report
    }

    fn findings(&self, connection: &Connection) -> Vec<(&'static str, Effect, String)> {
        let Identity { maxmemory_policy, replication, info_refusal, time_refusal, .. } =
            &connection.identity;
        let mut found = Vec::new();
        let mut add = |kind, effect, text: String| found.push((kind, effect, text));
        if let Some(policy) = maxmemory_policy.as_deref().filter(|policy| *policy != "noeviction") {
            add(
                "eviction",
                Effect::Guarantee,
                format!(
                    "maxmemory-policy is {policy}, which evicts held locks when the memory is full; set it to noeviction"
                ),
            );
        }
        if let Some(refusal) = info_refusal {
            add(
                "info",
                Effect::Unknown,
                format!(
                    "the memory policy, the role and the identity of the server are not known: {refusal}; grant +info"
                ),
            );
        }
        if let Some(refusal) = time_refusal {
            add(
                "time",
                Effect::Unknown,
                format!(
                    "the clock of the server is not known, and its steps go unnoticed: {refusal}; grant +time"
                ),
            );
        }
        let is_replica = replication.as_ref().is_some_and(|replication| replication.is_replica);
        let needs_replicas =
            replication.as_ref().is_none_or(|replication| replication.needs_replicas);
        match self.role {
            Role::Alone if is_replica => add("replica", Effect::Guarantee,
                "the server is a replica, whose master does not know its locks; use the address of the master".to_owned(),
            ),
            Role::Master(_) if !needs_replicas => add("min_replicas", Effect::Guarantee,
                "a master that is cut off goes on granting locks; set min-replicas-to-write to 1".to_owned(),
            ),
            _ => {}
        }
        if matches!(self.role, Role::Master(_) | Role::Member(_))
            && self.settings.node.restart_guard.is_none()
        {
            add(
                "failover",
                Effect::Guarantee,
                "a failover forgets the last locks; set restart_guard".to_owned(),
            );
        }
        for missing in &connection.missing {
            let (kind, effect, text) = finding(missing);
            add(kind, effect, text);
        }
        if !connection.takes_subscriptions {
            add(
                "subscriptions",
                Effect::Convenience,
                "the server takes no command beside a subscription, so waiters poll".to_owned(),
            );
        }
        found
    }
}

fn finding(missing: &MissingRight) -> (&'static str, Effect, String) {
    match missing {
        // No connection is made without this right.
        MissingRight::Command { names, words } => {
            ("right", Effect::Guarantee, format!("the user lacks {names}: {words}"))
        }
        MissingRight::StopSharing { names, words } => (
            "right",
            Effect::Guarantee,
            format!(
                "the user lacks {names}, without which shared locks and permits are not released or extended: {words}"
            ),
        ),
        MissingRight::Key { key, words } => (
            "right",
            Effect::Guarantee,
            format!(
                "the user may not use the key {key}, so locks whose keys its patterns exclude fail: {words}"
            ),
        ),
        MissingRight::Publish { channel } => (
            "right",
            Effect::Convenience,
            format!(
                "the user may not publish on the channel {channel}, so waiters poll; grant +publish and the channel"
            ),
        ),
    }
}
