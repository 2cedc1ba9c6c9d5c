//! Reads URLs. No error repeats a URL, which may contain a password.

use super::{ALLOWED, Login, RedisUrl, Servers};
use crate::store::kit::provider::Provider;
use crate::store::kit::query::Query;
use crate::store::kit::url::{HostPort, UrlParts};

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
        if url.ends_with("#insecure") {
            return Err("#insecure is refused; tls_insecure=true accepts any certificate".into());
        }
        let (scheme, parts) = UrlParts::split(url, ALLOWED)?;
        // Besides our own spelling, those of fred and Lettuce (`redis-sentinel`), and `valkey` for `redis`.
        let scheme = scheme.replace("valkey", "redis").replace('-', "+");
        if matches!(&*scheme, "unix" | "redis+unix") {
            return unix(&parts);
        }
        let is_tls = scheme.starts_with("rediss");
        let kind = scheme.strip_prefix(if is_tls { "rediss" } else { "redis" });
        let Some(kind @ ("" | "+sentinel" | "+cluster")) = kind else {
            return Err(format!("its scheme is unknown; {ALLOWED}"));
        };
        let path = parts.path;
        if path.contains('@') || parts.query.contains('@') {
            // It may be a part of the password, which no error and no name may repeat (secrets stay in).
            return Err(
                "it contains an @ after a / or a ?; in a password write %2F and %3F, in a parameter write %40".into(),
            );
        }
        let mut parameters = Query::read(parts.query)?;
        let [username, password] = parts.login()?;
        let login = Login::new(username, password, parameters.take(&["password_file"]))?;
        let tls = parameters.take_tls(is_tls, "rediss")?;
        let (servers, db) = match kind {
            "+sentinel" => sentinel_group(&parts, &mut parameters)?,
            "+cluster" => {
                let seeds = addresses(&parts, DEFAULT_PORT, &mut parameters)?;
                (Servers::Cluster { seeds }, path)
            }
            _ if parts.servers.contains(',') => {
                return Err("its host contains a comma; each server has a URL of its own".into());
            }
            _ => (Servers::Tcp(address(&parts, parts.servers, DEFAULT_PORT)?), path),
        };
        parameters.check_end(PARAMETERS)?;
        Ok(Self { servers, tls, login, db: database(db)? })
    }
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

/// Returns the addresses of the servers, followed by the addresses in fred's `node` parameters.
fn addresses(
    parts: &UrlParts<'_>,
    default_port: u16,
    parameters: &mut Query,
) -> Result<Vec<HostPort>, String> {
    let nodes: Vec<_> = std::iter::from_fn(|| parameters.take(&["node"])).collect();
    let mut addresses = Vec::new();
    for server in parts.servers.split(',').chain(nodes.iter().map(String::as_str)) {
        let address = address(parts, server, default_port)?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn address(parts: &UrlParts<'_>, text: &str, default_port: u16) -> Result<HostPort, String> {
    let server = parts.server(text, default_port)?;
    if ["0.0.0.0", "::"].contains(&&*server.host) {
        return Err(format!("no server has the address {}; {ALLOWED}", server.host));
    }
    Ok(server)
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

/// Returns an error if a part of the node's name would break a line of the log.
fn check_legible(text: &str, part: &str) -> Result<(), String> {
    if text.contains(char::is_control) {
        return Err(format!("{part} contains a control character; {ALLOWED}"));
    }
    Ok(())
}

fn unix(parts: &UrlParts<'_>) -> Result<RedisUrl, String> {
    if !parts.servers.is_empty() || !parts.userinfo.is_empty() {
        return Err(format!(
            "two slashes precede its path, and three are needed: write unix:///run/redis.sock for the socket \
             /run/redis.sock; {ALLOWED}"
        ));
    }
    if parts.path.is_empty() {
        return Err(format!("its path is missing; {ALLOWED}"));
    }
    let mut parameters = Query::read(parts.query)?;
    let mut take = |name| parameters.take(&[name]);
    let login = Login::new(take("user"), take("pass"), take("password_file"))?;
    let db = database(&take("db").unwrap_or_default())?;
    parameters.check_end(PARAMETERS)?;
    let path = format!("/{}", parts.decoded(parts.path)?);
    check_legible(&path, "its path")?;
    Ok(RedisUrl { servers: Servers::Unix(path.into()), tls: None, login, db })
}

/// Returns a Sentinel group, and the part of the path that is the database. The service is the first segment of the path,
/// or it is in a parameter of fred or Lettuce, and then the path is the database.
fn sentinel_group<'a>(
    parts: &UrlParts<'a>,
    parameters: &mut Query,
) -> Result<(Servers, &'a str), String> {
    let path = parts.path;
    let sentinels = addresses(parts, SENTINEL_PORT, parameters)?;
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
        (parts.decoded(service)?, db)
    };
    if service.is_empty() {
        return Err(format!("the name of the Sentinel service is missing; {ALLOWED}"));
    }
    check_legible(&service, "the name of the Sentinel service")?;
    Ok((Servers::Sentinel { sentinels, service, login }, db))
}
