//! Reads the URLs of ZooKeeper ensembles. No error repeats a URL, which may contain a password.

use std::time::Duration;

use super::requests::Acl;
use crate::access::TlsOptions;
use crate::store::kit::provider::Provider;
use crate::store::kit::query::Query;
use crate::store::kit::url::{HostPort, UrlParts, check_distinct};
use crate::time_text::{TIME_FORM, parse_time};

/// Says which URLs are allowed, at the end of errors.
const ALLOWED: &str = "allowed are zookeeper://host[:port][,host[:port]..][/chroot][?parameter=value&..] and, for TLS, zookeepers://...";
/// The names of the parameters.
const PARAMETERS: &str =
    "session_timeout, tick, acl, auth_file, tls_ca, tls_cert, tls_key, tls_insecure";
const DEFAULT_PORT: u16 = 2181;
const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(40);
/// The shortest and the longest session timeout.
const SESSION_TIMEOUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(20 * 60)];
/// A session timeout has at least this number of ticks. At fewer ticks, the leader does not hear of the session often enough
/// for the rule of [`evidence`](super::evidence), at the worst behind an observer.
const LEAST_TICKS: u32 = 8;

/// The servers of an ensemble, and the settings of the session.
#[derive(Clone)]
pub(crate) struct ZookeeperUrl {
    pub(super) servers: Vec<HostPort>,
    /// The path of the node in which all locks are; empty if it is the root.
    pub(super) chroot: String,
    pub(super) session_timeout: Duration,
    /// The tick of the servers, if the URL has it. Otherwise, the node measures it.
    pub(super) tick: Option<Duration>,
    /// Whether the URL permits that every client has all rights.
    is_open: bool,
    /// Gets the login for each connection.
    pub(crate) provider: Option<Provider>,
    /// `None` without TLS.
    pub(crate) tls: Option<TlsOptions>,
}

impl ZookeeperUrl {
    /// Reads a URL. The error explains the mistake without repeating the URL.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, parts) = UrlParts::split(url, ALLOWED)?;
        let is_tls = match &*scheme {
            "zookeeper" => false,
            "zookeepers" => true,
            _ => return Err(format!("its scheme is unknown; {ALLOWED}")),
        };
        if !parts.userinfo.is_empty() || parts.path.contains('@') {
            // No error and no name may repeat a password (secrets stay in).
            return Err("it contains an @: a login belongs in a file with user:password, see the parameter auth_file; in the chroot write %40 for @".into());
        }
        let server = |text| parts.server(text, DEFAULT_PORT);
        let servers = parts.servers.split(',').map(server).collect::<Result<Vec<_>, _>>()?;
        check_distinct(&servers)?;
        let chroot = match parts.path {
            "" => String::new(),
            path => format!("/{}", parts.decoded(path)?),
        };
        if !chroot.is_empty() && !is_path(&chroot) {
            return Err("its chroot is not a path of ZooKeeper: a path has no slash at its end, no empty part, no part . or .., and no control characters".into());
        }
        let mut url = Self {
            servers,
            chroot,
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            tick: None,
            is_open: false,
            provider: None,
            tls: None,
        };
        url.read_parameters(parts.query, is_tls)?;
        Ok(url)
    }

    fn read_parameters(&mut self, query: &str, is_tls: bool) -> Result<(), String> {
        let mut query = Query::read(query)?;
        self.tls = query.take_tls(is_tls, "zookeepers://")?;
        self.provider = query.take(&["auth_file"]).map(|path| Provider::File(path.into()));
        self.is_open = match query.take(&["acl"]).as_deref() {
            None => false,
            Some("open") => true,
            Some(_) => {
                return Err("its acl must be `open`; without it, only clients with the login have rights to the locks".into());
            }
        };
        let mut time = |name: &str| match query.take(&[name]) {
            None => Ok(None),
            Some(text) => {
                let time = parse_time(&text).map(Some);
                time.ok_or_else(|| format!("its {name} must be {TIME_FORM}"))
            }
        };
        if let Some(timeout) = time("session_timeout")? {
            let [shortest, longest] = SESSION_TIMEOUTS;
            if !(shortest..=longest).contains(&timeout) {
                return Err(format!(
                    "its session_timeout is {timeout:?}, and must be from {shortest:?} to {longest:?}"
                ));
            }
            self.session_timeout = timeout;
        }
        self.tick = time("tick")?;
        if let Some(tick) = self.tick {
            if tick.is_zero() {
                return Err("its tick must be at least 1ms".into());
            }
            self.check_tick(tick)?;
        }
        query.check_end(PARAMETERS)
    }

    /// Returns an error if the session timeout has too few ticks of this length.
    pub(super) fn check_tick(&self, tick: Duration) -> Result<(), String> {
        let (timeout, least) = (self.session_timeout, tick.saturating_mul(LEAST_TICKS));
        if timeout >= least {
            return Ok(());
        }
        Err(format!(
            "the session_timeout of {timeout:?} must be at least {LEAST_TICKS} ticks of the server, which are {least:?}: \
             add session_timeout={}ms to the URL, or more; if minSessionTimeout of the server is not two ticks, add tick=",
            least.as_millis()
        ))
    }

    /// Returns an error if the locks would be open to all clients although the URL does not say so. The
    /// [provider](Self::provider) must have been set.
    pub(crate) fn check_acl(&self) -> Result<(), String> {
        if self.is_open || self.provider.is_some() {
            return Ok(());
        }
        Err("it has no login: add auth_file=, the path of a file with user:password, or acl=open if every client may have all rights to the locks".into())
    }

    /// Returns the rights to new nodes.
    pub(super) fn acl(&self) -> Acl {
        if self.is_open { Acl::Open } else { Acl::CreatorAll }
    }

    /// Returns the path of the node in which all locks are.
    pub(super) fn root(&self) -> &str {
        if self.chroot.is_empty() { "/" } else { &self.chroot }
    }

    /// Returns the longest lease of a lock.
    pub(crate) fn longest_lease(&self) -> Duration {
        self.session_timeout / 2
    }
}

/// Returns whether ZooKeeper allows this path (`PathUtils.validatePath`), which is not the root.
fn is_path(path: &str) -> bool {
    let is_allowed = |character: char| {
        !character.is_control() && !matches!(character, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
    };
    let mut parts = path.split('/');
    parts.next() == Some("")
        && parts.all(|part| !["", ".", ".."].contains(&part) && part.chars().all(is_allowed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::description::StoreUrl;

    fn parse(url: &str) -> ZookeeperUrl {
        ZookeeperUrl::parse(url).unwrap_or_else(|reason| panic!("{url}: {reason}"))
    }

    #[test]
    fn the_name_has_the_hosts_and_the_chroot() {
        for (url, name) in [
            ("zookeeper://zk.local?acl=open", "zk.local:2181"),
            ("zookeeper://zk.local/", "zk.local:2181"),
            (
                "ZooKeeper://A:2182,b_1,[::1],[::2]:7/my%20locks/%C3%A9",
                "a:2182,b_1:2181,[::1]:2181,[::2]:7/my locks/é",
            ),
        ] {
            assert_eq!(parse(url).name(), name, "{url}");
        }
    }

    #[test]
    fn a_url_has_defaults_and_parameters() {
        let url = parse("zookeeper://a");
        assert_eq!(url.session_timeout, Duration::from_secs(40));
        assert_eq!(url.longest_lease(), Duration::from_secs(20));
        assert!(url.tick.is_none() && url.tls.is_none() && url.chroot.is_empty());
        let url = parse("zookeeper://a/locks?session_timeout=8s&tick=1s&auth_file=/run/s%20x");
        assert_eq!(url.session_timeout, Duration::from_secs(8));
        assert_eq!((url.tick, url.chroot.as_str()), (Some(Duration::from_secs(1)), "/locks"));
        assert!(url.provider == Some(Provider::File("/run/s x".into())));
    }

    #[test]
    fn locks_are_open_to_all_clients_only_if_the_url_says_so() {
        let with_login = "zookeeper://a?auth_file=/x";
        assert!(parse("zookeeper://a").check_acl().unwrap_err().contains("acl=open"));
        assert_eq!(parse("zookeeper://a?acl=open").check_acl(), Ok(()));
        assert_eq!(parse(with_login).check_acl(), Ok(()));
        assert_eq!(parse("zookeeper://a?acl=open").acl(), Acl::Open);
        assert_eq!(parse(with_login).acl(), Acl::CreatorAll);
        assert_eq!(parse(&format!("{with_login}&acl=open")).acl(), Acl::Open);
        assert!(parse(with_login).provider.is_some() && parse("zookeeper://a").provider.is_none());
    }

    #[test]
    #[cfg(feature = "tls")]
    fn the_scheme_decides_about_tls() {
        let url = parse("zookeepers://a:2281?tls_ca=/ca.pem");
        assert_eq!(url.tls, Some(TlsOptions::new().ca_file("/ca.pem")));
    }

    /// Parts of a password are in the wrong places.
    #[test]
    fn a_wrong_url_is_an_error_that_repeats_nothing_of_it() {
        for (url, words) in [
            ("zookeeper:s3cret", "two slashes"),
            ("zookeepers+s3cret://a?acl=open", "its scheme is unknown"),
            ("zookeeper-tls://a?acl=open", "its scheme is unknown"),
            ("zookeeper://a#s3cret", "write %23"),
            ("zookeeper://app:s3cret@a", "auth_file"),
            ("zookeeper://app:1/s3cret@a/locks", "auth_file"),
            ("zookeeper://app:1?s3cret@a/locks", "known are session_timeout"),
            ("zookeeper://", "a host is missing"),
            ("zookeeper:///s3cret", "a host is missing"),
            ("zookeeper://a,,b", "a host is missing"),
            ("zookeeper://app:s3cret", "its port cannot be read"),
            ("zookeeper://a:0", "its port cannot be read"),
            ("zookeeper://a:65536", "its port cannot be read"),
            ("zookeeper://a:+80", "its port cannot be read"),
            ("zookeeper://a:", "its port cannot be read"),
            ("zookeeper://[::1", "its port cannot be read"),
            ("zookeeper://[::1]2181", "its port cannot be read"),
            ("zookeeper://[s3cret]", "its port cannot be read"),
            ("zookeeper://s3 cret", "its port cannot be read"),
            ("zookeeper://s3%0Acret", "its port cannot be read"),
            ("zookeeper://a,b:2181,A:2181", "occurs twice"),
            ("zookeeper://a/s3cret/", "not a path"),
            ("zookeeper://a//s3cret", "not a path"),
            ("zookeeper://a/s3cret/.", "not a path"),
            ("zookeeper://a/../s3cret", "not a path"),
            ("zookeeper://a/s3cret%00", "not a path"),
            ("zookeeper://a/s3cret%0a", "not a path"),
            ("zookeeper://a/s3cret%EF%BF%BD", "not a path"),
            ("zookeeper://a/s3cret%EE%80%80", "not a path"),
            ("zookeeper://a/s3cret%F0%9F%94%92", "not a path"),
            ("zookeeper://a/s3cret%ff", "not UTF-8"),
            ("zookeeper://a?1&s3cret=c@a", "known are session_timeout"),
            ("zookeeper://a?%73%33cret=1", "known are session_timeout"),
            (
                "zookeeper://a?timeout=s3cret",
                "its parameter \"timeout\" is unknown; known are session_timeout",
            ),
            ("zookeeper://a?acl=open&acl=open", "\"acl\" occurs twice"),
            ("zookeeper://a?acl=s3cret", "its acl must be `open`"),
            ("zookeeper://a?session_timeout=s3cret", "a time such as"),
            ("zookeeper://a?session_timeout=999ms", "999ms, and must be from 1s to 1200s"),
            ("zookeeper://a?session_timeout=1201s", "1201s, and must be from 1s to 1200s"),
            ("zookeeper://a?tick=s3cret", "a time such as"),
            ("zookeeper://a?tick=0", "at least 1ms"),
            ("zookeeper://a?tick=5001ms", "must be at least 8 ticks"),
            ("zookeeper://a?session_timeout=10s&tick=2s", "add session_timeout=16000ms"),
            ("zookeeper://a?tls_ca=/s3cret", "write zookeepers://"),
        ] {
            let reason = ZookeeperUrl::parse(url).err().unwrap_or_else(|| panic!("{url}"));
            assert!(reason.contains(words), "{url}: {reason}");
            assert!(!reason.contains("s3cret"), "{url}: {reason}");
        }
    }
}
