//! Reads URLs. No error repeats a URL, which may contain a password.

use bb8_redis::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::query::QueryPairs;
use super::{ALLOWED, HostPort, Login, RedisUrl, Servers};
use crate::access::{Pem, Provider, TlsOptions};

/// The default port of a server.
const DEFAULT_PORT: u16 = 6379;
/// The default port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// The servers that the scheme of a URL announces.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Tcp,
    Unix,
    Sentinel,
    Cluster,
}

impl RedisUrl {
    /// Reads a URL. The error explains the mistake without repeating the URL.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(format!("it has no scheme; {ALLOWED}"));
        };
        let scheme = scheme.to_ascii_lowercase();
        let Some((kind, is_tls)) = kind(&scheme) else {
            return Err(format!("its scheme is unknown; {ALLOWED}"));
        };
        if is_tls && cfg!(not(feature = "tls")) {
            return Err("TLS needs the feature `tls` of redlock-core (or redlock-axum)".into());
        }
        let (rest, fragment) = split_fragment(kind, rest)?;
        match kind {
            Kind::Unix => unix(&format!("{scheme}:{rest}")),
            Kind::Tcp => tcp(Parts::split(rest)?, is_tls),
            Kind::Sentinel => sentinel(Parts::split(rest)?, fragment, is_tls),
            Kind::Cluster => cluster(Parts::split(rest)?, is_tls),
        }
    }
}

/// Returns the kind of a scheme, and whether it means TLS. Besides our own spelling, those of fred and Lettuce are
/// accepted (`redis-sentinel`), and `valkey` for `redis`.
fn kind(scheme: &str) -> Option<(Kind, bool)> {
    let (base, kind) = match scheme.split_once(['+', '-']) {
        None if scheme == "unix" => return Some((Kind::Unix, false)),
        None => (scheme, Kind::Tcp),
        Some((base, "unix")) => (base, Kind::Unix),
        Some((base, "sentinel")) => (base, Kind::Sentinel),
        Some((base, "cluster")) => (base, Kind::Cluster),
        Some(_) => return None,
    };
    match base {
        "redis" | "valkey" => Some((kind, false)),
        "rediss" | "valkeys" if kind != Kind::Unix => Some((kind, true)),
        _ => None,
    }
}

/// Splits off the fragment, in which Lettuce has the service of a Sentinel group.
fn split_fragment(kind: Kind, rest: &str) -> Result<(&str, Option<&str>), String> {
    let Some((before, fragment)) = rest.rsplit_once('#') else {
        return Ok((rest, None));
    };
    if fragment == "insecure" {
        return Err("#insecure is refused; tls_insecure=true accepts any certificate".into());
    }
    if kind == Kind::Sentinel && !before.contains('#') && !fragment.contains(['@', '/']) {
        return Ok((before, Some(fragment)));
    }
    Err(format!("it contains a #; write %23 where it belongs to a password; {ALLOWED}"))
}

/// The parts of a URL with hosts.
struct Parts<'a> {
    userinfo: &'a str,
    hosts: Vec<&'a str>,
    /// Without the leading `/`.
    path: &'a str,
    parameters: QueryPairs,
}

impl<'a> Parts<'a> {
    fn split(rest: &'a str) -> Result<Self, String> {
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(format!("two slashes are missing after its scheme; {ALLOWED}"));
        };
        if rest.split_once(['/', '?']).is_some_and(|(_, after)| after.contains('@')) {
            // It may be a part of the password, which no error and no name may repeat (secrets stay in).
            return Err(
                "it contains an @ after a / or a ?; in a password write %2F and %3F, in a parameter write %40".into(),
            );
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (userinfo, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let hosts: Vec<_> = hosts.split(',').collect();
        if hosts.contains(&"") {
            return Err(format!("it cannot be read, because a host is missing; {ALLOWED}"));
        }
        Ok(Self { userinfo, hosts, path, parameters: QueryPairs::read(query)? })
    }

    /// Returns the addresses of the hosts, and of those that fred's parameters `node` name.
    fn addresses(&mut self, default_port: u16) -> Result<Vec<HostPort>, String> {
        let more: Vec<String> = std::iter::from_fn(|| self.parameters.take(&["node"])).collect();
        let hosts = self.hosts.iter().copied().chain(more.iter().map(String::as_str));
        let mut addresses = Vec::new();
        for host in hosts {
            let address = host_port(host, default_port)?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(addresses)
    }

    fn login(&mut self) -> Result<Login, String> {
        let info = read(&format!("redis://{}@localhost", self.userinfo))?;
        Login::of(&info).or_file(self.parameters.take(&["password_file"]))
    }

    fn tls(&mut self, is_tls: bool) -> Result<Option<TlsOptions>, String> {
        let insecure = match self.parameters.take(&["tls_insecure"]).as_deref() {
            None => None,
            Some("false") => Some(false),
            Some("true") => Some(true),
            Some(_) => return Err("its tls_insecure is neither true nor false".into()),
        };
        let mut path = |name| self.parameters.take(&[name]).map(Pem::file);
        let (ca, cert, key) = (path("tls_ca"), path("tls_cert"), path("tls_key"));
        let options = TlsOptions { ca, cert, key, insecure };
        if options.cert.is_some() != options.key.is_some() {
            return Err("tls_cert and tls_key belong together, and one of them is missing".into());
        }
        if !is_tls && options != TlsOptions::default() {
            return Err(
                "it has parameters of TLS, but its scheme means no TLS; write rediss".into()
            );
        }
        Ok(is_tls.then_some(options))
    }
}

impl Login {
    fn of(info: &ConnectionInfo) -> Self {
        let settings = info.redis_settings();
        Self {
            username: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
            provider: None,
        }
    }

    /// Takes the password from a file, if there is one.
    fn or_file(mut self, path: Option<String>) -> Result<Self, String> {
        if path.is_some() && self.password.is_some() {
            return Err("it has both a password and a password_file".into());
        }
        self.provider = path.map(|path| Provider::File(path.into()));
        Ok(self)
    }
}

/// Reads a URL of the redis crate.
fn read(url: &str) -> Result<ConnectionInfo, String> {
    url.into_connection_info()
        .map_err(|error| format!("{}; {ALLOWED}", error.detail().unwrap_or("it cannot be read")))
}

fn host_port(text: &str, default_port: u16) -> Result<HostPort, String> {
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    match read(&format!("redis://{text}"))?.addr() {
        ConnectionAddr::Tcp(host, port) => {
            Ok(HostPort { host: host.clone(), port: if has_port { *port } else { default_port } })
        }
        _ => Err(format!("its host cannot be read; {ALLOWED}")),
    }
}

fn database(path: &str) -> Result<i64, String> {
    match path.trim_end_matches('/') {
        "" => Ok(0),
        text => match text.parse::<i64>() {
            Ok(db) if db >= 0 => Ok(db),
            Ok(_) => Err("its database is negative".into()),
            Err(_) => Err(format!("its database is not a number; {ALLOWED}")),
        },
    }
}

fn tcp(mut parts: Parts<'_>, is_tls: bool) -> Result<RedisUrl, String> {
    if parts.hosts.len() > 1 {
        return Err("its host contains a comma; each server has a URL of its own".into());
    }
    let server = host_port(parts.hosts[0], DEFAULT_PORT)?;
    let (login, tls) = (parts.login()?, parts.tls(is_tls)?);
    parts.parameters.check_end()?;
    Ok(RedisUrl { servers: Servers::Tcp(server), tls, login, db: database(parts.path)? })
}

fn unix(url: &str) -> Result<RedisUrl, String> {
    let info = read(url)?;
    let ConnectionAddr::Unix(path) = info.addr() else {
        return Err(format!("its path is missing; {ALLOWED}"));
    };
    let db = info.redis_settings().db();
    if db < 0 {
        return Err("its database is negative".into());
    }
    let (_, query) = url.split_once('?').unwrap_or((url, ""));
    let mut parameters = QueryPairs::read(query)?;
    let login = Login::of(&info).or_file(parameters.take(&["password_file"]))?;
    for read_above in ["db", "user", "pass"] {
        parameters.take(&[read_above]);
    }
    parameters.check_end()?;
    Ok(RedisUrl { servers: Servers::Unix(path.clone()), tls: None, login, db })
}

/// Reads the URL of a Sentinel group. The service is the first segment of the path, or it is in one of the places where
/// fred and Lettuce have it, and then the path is the database.
fn sentinel(
    mut parts: Parts<'_>,
    fragment: Option<&str>,
    is_tls: bool,
) -> Result<RedisUrl, String> {
    let sentinels = parts.addresses(SENTINEL_PORT)?;
    let (login, tls) = (parts.login()?, parts.tls(is_tls)?);
    let of_sentinels = Login {
        username: parts.parameters.take(&["sentinel_username", "sentinelUsername"]),
        password: parts.parameters.take(&["sentinel_password", "sentinelPassword"]),
        provider: None,
    };
    if fragment.is_some() && of_sentinels.password.is_some() {
        // It may be a part of the password, which no error and no name may repeat (secrets stay in).
        return Err(
            "it contains a # after a password; in a password write %23, and write the service into the path".into(),
        );
    }
    let of_sentinels = of_sentinels.or_file(parts.parameters.take(&["sentinel_password_file"]))?;
    let has_password = of_sentinels.password.is_some() || of_sentinels.provider.is_some();
    if of_sentinels.username.is_some() && !has_password {
        return Err("it has a sentinel_username, but no sentinel_password".into());
    }
    let named = parts.parameters.take(&["sentinelServiceName", "sentinelMasterId"]);
    parts.parameters.check_end()?;
    let (service, db) = if let Some(service) = named.or_else(|| fragment.map(decoded)) {
        (service, parts.path)
    } else {
        let (service, db) = parts.path.split_once('/').unwrap_or((parts.path, ""));
        (decoded(service), db)
    };
    if service.is_empty() {
        return Err(format!("the name of the Sentinel service is missing; {ALLOWED}"));
    }
    let servers = Servers::Sentinel { sentinels, service, login: of_sentinels };
    Ok(RedisUrl { servers, tls, login, db: database(db)? })
}

fn cluster(mut parts: Parts<'_>, is_tls: bool) -> Result<RedisUrl, String> {
    let seeds = parts.addresses(DEFAULT_PORT)?;
    let (login, tls) = (parts.login()?, parts.tls(is_tls)?);
    parts.parameters.check_end()?;
    if database(parts.path)? != 0 {
        return Err("it has a database, but a Redis Cluster has only the database 0".into());
    }
    Ok(RedisUrl { servers: Servers::Cluster { seeds }, tls, login, db: 0 })
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
