//! Reads URLs. No error repeats a URL, which may contain a password.

use bb8_redis::redis::parse_redis_url;
use percent_encoding::percent_decode_str;

use super::{ALLOWED, HostPort, Login, RedisUrl, Servers};
use crate::access::{Provider, Query};

/// The default port of a server.
const DEFAULT_PORT: u16 = 6379;
/// The default port of a sentinel.
const SENTINEL_PORT: u16 = 26379;
/// The names of the parameters of all kinds of URLs.
const PARAMETERS: &str = "db, user, pass, password_file, tls_ca, tls_cert, tls_key, tls_insecure, node, \
                          sentinel_username, sentinelUsername, sentinel_password, sentinelPassword, \
                          sentinel_password_file, sentinelServiceName, sentinelMasterId";

impl RedisUrl {
    /// Reads a URL. The error explains the mistake without repeating the URL.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(format!("it has no scheme; {ALLOWED}"));
        };
        // Besides our own spelling, those of fred and Lettuce (`redis-sentinel`), and `valkey` for `redis`.
        let scheme = scheme.to_ascii_lowercase().replace("valkey", "redis").replace('-', "+");
        if matches!(&*scheme, "unix" | "redis+unix") {
            return unix(rest);
        }
        let is_tls = scheme.starts_with("rediss");
        let kind = scheme.strip_prefix(if is_tls { "rediss" } else { "redis" });
        let Some(kind @ ("" | "+sentinel" | "+cluster")) = kind else {
            return Err(format!("its scheme is unknown; {ALLOWED}"));
        };
        let (rest, query) = split_query(rest)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') || query.contains('@') {
            // It may be a part of the password, which no error and no name may repeat (secrets stay in).
            return Err(
                "it contains an @ after a / or a ?; in a password write %2F and %3F, in a parameter write %40".into(),
            );
        }
        let mut parameters = Query::read(query)?;
        let (userinfo, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (username, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
        let part = |text: &str| (!text.is_empty()).then(|| decoded(text)).transpose();
        let login =
            Login::new(part(username)?, part(password)?, parameters.take(&["password_file"]))?;
        let tls = parameters.take_tls(is_tls, "rediss")?;
        let (servers, db) = match kind {
            "+sentinel" => sentinel_group(hosts, path, &mut parameters)?,
            "+cluster" => {
                let seeds = addresses(hosts, DEFAULT_PORT, &mut parameters)?;
                (Servers::Cluster { seeds }, path)
            }
            _ if hosts.contains(',') => {
                return Err("its host contains a comma; each server has a URL of its own".into());
            }
            _ => (Servers::Tcp(address(hosts, DEFAULT_PORT)?), path),
        };
        parameters.check_end(PARAMETERS)?;
        Ok(Self { servers, tls, login, db: database(db)? })
    }
}

/// Splits the part after the scheme at its query.
fn split_query(rest: &str) -> Result<(&str, &str), String> {
    if rest.ends_with("#insecure") {
        return Err("#insecure is refused; tls_insecure=true accepts any certificate".into());
    }
    if rest.contains('#') {
        return Err(format!("it contains a #; write %23 in its place; {ALLOWED}"));
    }
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(format!("two slashes are missing after its scheme; {ALLOWED}"));
    };
    Ok(rest.split_once('?').unwrap_or((rest, "")))
}

impl Login {
    /// Returns the login with a password, or with a file that contains it.
    fn new(
        username: Option<String>,
        password: Option<String>,
        file: Option<String>,
    ) -> Result<Self, String> {
        if file.is_some() && password.is_some() {
            return Err("it has both a password and a password_file".into());
        }
        let provider = file.map(|path| Provider::File(path.into()));
        Ok(Self { username, password, provider })
    }
}

/// Returns the addresses of the hosts, followed by the addresses in fred's `node` parameters.
fn addresses(
    hosts: &str,
    default_port: u16,
    parameters: &mut Query,
) -> Result<Vec<HostPort>, String> {
    let nodes: Vec<_> = std::iter::from_fn(|| parameters.take(&["node"])).collect();
    let mut addresses = Vec::new();
    for host in hosts.split(',').chain(nodes.iter().map(String::as_str)) {
        let address = address(host, default_port)?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn address(text: &str, default_port: u16) -> Result<HostPort, String> {
    if text.is_empty() {
        return Err(format!("it cannot be read, because a host is missing; {ALLOWED}"));
    }
    let url = parse_redis_url(&format!("redis://{text}"));
    let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
    let host = host.trim_matches(['[', ']']).to_owned();
    // No server has a wildcard address.
    if ["", "0.0.0.0", "::"].contains(&&*host) || text.contains(['/', '?', '#', '@']) {
        return Err(format!("its host or its port cannot be read; {ALLOWED}"));
    }
    Ok(HostPort { host, port: url.and_then(|url| url.port()).unwrap_or(default_port) })
}

fn database(text: &str) -> Result<i64, String> {
    match text.trim_end_matches('/') {
        "" => Ok(0),
        text => match text.parse::<i64>() {
            Ok(db) if db >= 0 => Ok(db),
            Ok(_) => Err("its database is negative".into()),
            Err(_) => Err(format!("its database is not a number; {ALLOWED}")),
        },
    }
}

fn unix(rest: &str) -> Result<RedisUrl, String> {
    let (path, query) = split_query(rest)?;
    if !path.starts_with('/') {
        return Err(format!("its path is missing; {ALLOWED}"));
    }
    let mut parameters = Query::read(query)?;
    let mut take = |name| parameters.take(&[name]);
    let login = Login::new(take("user"), take("pass"), take("password_file"))?;
    let db = database(&take("db").unwrap_or_default())?;
    parameters.check_end(PARAMETERS)?;
    Ok(RedisUrl { servers: Servers::Unix(decoded(path)?.into()), tls: None, login, db })
}

/// Returns a Sentinel group, and the part of the path that is the database. The service is the first segment of the path,
/// or it is in a parameter of fred or Lettuce, and then the path is the database.
fn sentinel_group<'a>(
    hosts: &str,
    path: &'a str,
    parameters: &mut Query,
) -> Result<(Servers, &'a str), String> {
    let sentinels = addresses(hosts, SENTINEL_PORT, parameters)?;
    let username = parameters.take(&["sentinel_username", "sentinelUsername"]);
    let password = parameters.take(&["sentinel_password", "sentinelPassword"]);
    let login = Login::new(username, password, parameters.take(&["sentinel_password_file"]))?;
    if login.username.is_some() && login.password.is_none() && login.provider.is_none() {
        return Err("it has a sentinel_username, but no sentinel_password".into());
    }
    let named = parameters.take(&["sentinelServiceName", "sentinelMasterId"]);
    let (service, db) = if let Some(service) = named {
        (service, path)
    } else {
        let (service, db) = path.split_once('/').unwrap_or((path, ""));
        (decoded(service)?, db)
    };
    if service.is_empty() {
        return Err(format!("the name of the Sentinel service is missing; {ALLOWED}"));
    }
    Ok((Servers::Sentinel { sentinels, service, login }, db))
}

/// Decodes percent-encoded characters.
fn decoded(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| format!("it contains bytes that are not UTF-8; {ALLOWED}"))
}
