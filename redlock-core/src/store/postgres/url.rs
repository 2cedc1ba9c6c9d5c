//! Reads the URLs of PostgreSQL servers. No error repeats a URL, which may contain a password.

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Config, Host};

use crate::access::TlsOptions;
use crate::store::kit::provider::Provider;
use crate::store::kit::query::Query;
use crate::store::kit::url::{HostPort, UrlParts, check_distinct, read_port};

/// Says which URLs are allowed, at the end of errors.
const ALLOWED: &str = "allowed are postgres://user[:password@]host[:port][,host[:port]..]/database[?parameter=value&..] \
                       and postgresql://...";
/// The names of the parameters.
const PARAMETERS: &str =
    "schema, connections, pooler, sslmode, password_file, tls_ca, tls_cert, tls_key, tls_insecure";
const DEFAULT_PORT: u16 = 5432;
/// The length at which PostgreSQL cuts the name of a schema.
const MAX_SCHEMA: usize = 63;

/// The servers and the database of a node, and the settings of its connections.
#[derive(Clone)]
pub(crate) struct PostgresUrl {
    /// The hosts, the user, the password and the database.
    pub(super) config: Config,
    /// Gets the password for each connection.
    pub(crate) provider: Option<Provider>,
    /// `None` without TLS.
    pub(crate) tls: Option<TlsOptions>,
    /// The schema of the table; `public` by default.
    pub(super) schema: String,
    /// The number of connections for operations.
    pub(super) connections: usize,
    /// Whether a pooler gives each transaction another connection to the server.
    pub(super) has_pooler: bool,
}

impl PostgresUrl {
    /// Reads a URL. The error explains the mistake without repeating the URL.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, parts) = UrlParts::split(url, ALLOWED)?;
        if !matches!(&*scheme, "postgres" | "postgresql") {
            return Err(format!("its scheme is unknown; {ALLOWED}"));
        }
        let database = parts.path;
        if database.contains('@') || parts.query.contains('@') || parts.userinfo.contains('@') {
            // It may be a part of the password, which no error and no name may repeat (secrets stay in).
            return Err("it contains an @ in its password, or after a / or a ?; write %40 for @, %2F for / and %3F for ?".into());
        }
        let [user, password] = parts.login()?;
        let user = user.ok_or_else(|| format!("the user is missing; {ALLOWED}"))?;
        let server = |text: &str| socket(text).map_or_else(|| parts.server(text, DEFAULT_PORT), Ok);
        let servers = parts.servers.split(',').map(server).collect::<Result<Vec<_>, _>>()?;
        check_distinct(&servers)?;
        if database.is_empty() || database.contains('/') {
            return Err(format!("the database is missing, or it contains a /; {ALLOWED}"));
        }
        let database = parts.decoded(database)?;
        if [&user, &database].iter().any(|name| name.contains(char::is_control)) {
            return Err(format!(
                "the user or the database contains a control character; {ALLOWED}"
            ));
        }
        let mut config = Config::new();
        config.user(user).dbname(database);
        if let Some(password) = password {
            config.password(password);
        }
        for HostPort { host, port } in &servers {
            config.host(host).port(*port);
        }
        let mut url = Self {
            config,
            provider: None,
            tls: None,
            schema: "public".to_owned(),
            connections: 2,
            has_pooler: false,
        };
        url.read_parameters(parts.query)?;
        Ok(url)
    }

    fn read_parameters(&mut self, query: &str) -> Result<(), String> {
        let mut query = Query::read(query)?;
        let is_tls = match query.take(&["sslmode"]).as_deref() {
            None | Some("disable") => false,
            Some("require" | "verify-full") => true,
            Some("prefer" | "allow") => return Err(
                "its sslmode allows connections without TLS; write sslmode=require, which also verifies the certificate, \
                 or sslmode=disable".into(),
            ),
            Some(_) => return Err("its sslmode is unknown; known are disable, require and verify-full, which is the same as require".into()),
        };
        self.tls = query.take_tls(is_tls, "sslmode=require")?;
        if is_tls && self.config.get_hosts().iter().any(|host| !matches!(host, Host::Tcp(_))) {
            return Err("PostgreSQL knows no TLS over a Unix socket; write sslmode=disable".into());
        }
        self.provider = query.take(&["password_file"]).map(|path| Provider::File(path.into()));
        if self.provider.is_some() && self.config.get_password().is_some() {
            return Err("it has both a password and a password_file".into());
        }
        if let Some(schema) = query.take(&["schema"]) {
            if !(1..=MAX_SCHEMA).contains(&schema.len()) || schema.contains(char::is_control) {
                return Err(format!(
                    "its schema must have 1 to {MAX_SCHEMA} bytes and no control characters"
                ));
            }
            self.schema = schema;
        }
        if let Some(count) = query.take(&["connections"]) {
            let count = count.parse().ok().filter(|count| (1..=16).contains(count));
            self.connections = count.ok_or("its connections must be a number from 1 to 16")?;
        }
        if let Some(mode) = query.take(&["pooler"]) {
            if mode != "transaction" {
                return Err(
                    "its pooler must be `transaction`; a pooler in session mode needs no parameter"
                        .into(),
                );
            }
            self.has_pooler = true;
        }
        if query.take(&["pgbouncer"]).is_some() {
            return Err(
                "its parameter pgbouncer is unknown; for a pooler in transaction mode write pooler=transaction".into(),
            );
        }
        query.check_end(PARAMETERS)
    }

    /// Returns the hosts with their ports.
    pub(super) fn servers(&self) -> impl Iterator<Item = (&Host, u16)> {
        self.config.get_hosts().iter().zip(self.config.get_ports().iter().copied())
    }
}

/// Reads a server whose host is the folder of its Unix socket. The slash at the beginning of the folder is encoded.
fn socket(text: &str) -> Option<HostPort> {
    let (folder, port) = text.split_at(text.find(':').unwrap_or(text.len()));
    let host = percent_decode_str(folder).decode_utf8().ok()?;
    let is_folder = host.starts_with('/') && !host.contains(char::is_control);
    is_folder.then_some(())?;
    Some(HostPort { host: host.into(), port: read_port(port, DEFAULT_PORT)? })
}

/// Returns a host and its port for names and errors.
pub(super) fn address(host: &Host, port: u16) -> String {
    match host {
        Host::Tcp(host) if host.contains(':') => format!("[{host}]:{port}"),
        Host::Tcp(host) => format!("{host}:{port}"),
        #[cfg(unix)]
        Host::Unix(folder) => format!("{}:{port}", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::kit::description::StoreUrl;

    fn parse(url: &str) -> PostgresUrl {
        PostgresUrl::parse(url).unwrap_or_else(|reason| panic!("{url}: {reason}"))
    }

    #[test]
    fn the_name_has_the_hosts_and_the_database_without_credentials() {
        for (url, name) in [
            ("postgres://app@db.local/shop", "db.local:5432/shop"),
            ("POSTGRESQL://app:s3cret@db.local:6000/shop?pooler=transaction", "db.local:6000/shop"),
            (
                "postgres://app:s3%40cret@a,b:7000,[::1]/shop?schema=locks",
                "a:5432,b:7000,[::1]:5432/shop/locks",
            ),
            ("postgres://app@%2Frun%2Fpostgresql/my%20shop", "/run/postgresql:5432/my shop"),
            ("postgres://app@%2frun:6000,%2Ftmp,b/shop", "/run:6000,/tmp:5432,b:5432/shop"),
        ] {
            assert_eq!(parse(url).name(), name, "{url}");
        }
    }

    #[test]
    fn a_url_has_defaults_and_parameters() {
        let url = parse("postgres://app:s3%26cret@db/shop");
        assert_eq!((url.schema.as_str(), url.connections, url.has_pooler), ("public", 2, false));
        assert_eq!(url.config.get_password(), Some(&b"s3&cret"[..]));
        assert!(url.tls.is_none());
        let url = parse(
            "postgres://app@db/shop?schema=my%22locks&connections=16&pooler=transaction&password_file=/run/s%20x",
        );
        assert_eq!((url.schema.as_str(), url.connections, url.has_pooler), ("my\"locks", 16, true));
        assert!(url.provider == Some(Provider::File("/run/s x".into())));
    }

    #[test]
    #[cfg(feature = "tls")]
    fn a_required_certificate_is_verified() {
        for mode in ["require", "verify-full"] {
            let url = parse(&format!("postgres://app@db/shop?sslmode={mode}&tls_ca=/ca.pem"));
            assert_eq!(url.tls, Some(TlsOptions::new().ca_file("/ca.pem")));
        }
        assert_eq!(parse("postgres://app@db/shop?sslmode=disable").tls, None);
    }

    /// Parts of the password are in the wrong places.
    #[test]
    fn a_wrong_url_is_an_error_that_repeats_nothing_of_it() {
        for (url, words) in [
            ("postgres:app:s3cret@db/shop", "two slashes"),
            ("postgres+s3cret://app@db/shop", "its scheme is unknown"),
            ("postgresql-ssl://app@db/shop", "its scheme is unknown"),
            ("postgres://app:s3cret@db/shop#x", "write %23"),
            ("postgres://app:s3cret@x@db/shop", "write %40"),
            ("postgres://app:x/s3cret@db/shop", "write %40"),
            ("postgres://app:x?s3cret@db/shop", "write %40"),
            ("postgres://db/shop", "the user is missing"),
            ("postgres://:s3cret@db/shop", "the user is missing"),
            ("postgres://app:s3cret@/shop", "a host is missing"),
            ("postgres://app:s3cret@a,,b/shop", "a host is missing"),
            ("postgres://app:s3cret@db", "the database is missing"),
            ("postgres://app:s3cret@db/shop/locks", "contains a /"),
            ("postgres://app:s3cret@db:x/shop", "cannot be read"),
            ("postgres://app:s3cret@db:0/shop", "cannot be read"),
            ("postgres://app:s3cret@db:65536/shop", "cannot be read"),
            ("postgres://app:s3cret@[::1/shop", "cannot be read"),
            ("postgres://app:s3cret@db/sh%00op", "control character"),
            ("postgres://app:s3cret@db/%ff", "not UTF-8"),
            ("postgres://a%0app:s3cret@db/shop", "control character"),
            ("postgres://app:s3cret@%2Frun:0/shop", "cannot be read"),
            ("postgres://app:s3cret@%2Frun%00/shop", "cannot be read"),
            ("postgres://app:s3cret@A,a/shop", "occurs twice"),
            ("postgres://app:s3cret@a,b:5432,a:5432/shop", "occurs twice"),
            (
                "postgres://app:s3cret@db/shop?search_path=s3cret",
                "its parameter \"search_path\" is unknown; known are schema, connections, pooler,",
            ),
            ("postgres://app:s3cret@db/shop?pgbouncer=true", "write pooler=transaction"),
            ("postgres://app:s3cret@db/shop?schema=a&schema=b", "\"schema\" occurs twice"),
            ("postgres://app:s3cret@db/shop?schema=", "1 to 63 bytes"),
            ("postgres://app:s3cret@db/shop?schema=a%0a", "1 to 63 bytes"),
            ("postgres://app:s3cret@db/shop?schema=%ff", "not UTF-8"),
            ("postgres://app:s3cret@db/shop?connections=0", "from 1 to 16"),
            ("postgres://app:s3cret@db/shop?connections=17", "from 1 to 16"),
            ("postgres://app:s3cret@db/shop?pooler=session", "must be `transaction`"),
            ("postgres://app:s3cret@db/shop?password_file=/s3cret", "both a password"),
            ("postgres://app@db/shop?sslmode=prefer", "sslmode=require"),
            #[cfg(all(unix, feature = "tls"))]
            ("postgres://app@%2Frun/shop?sslmode=require", "Unix socket"),
            ("postgres://app@db/shop?sslmode=s3cret", "its sslmode is unknown"),
            ("postgres://app@db/shop?tls_ca=/s3cret", "means no TLS"),
            ("postgres://app@db/shop?sslmode=require&tls_cert=/s3cret", "tls_key"),
            ("postgres://app@db/shop?tls_insecure=s3cret", "neither true nor false"),
        ] {
            let reason = PostgresUrl::parse(url).err().unwrap_or_else(|| panic!("{url}"));
            assert!(reason.contains(words), "{url}: {reason}");
            assert!(!reason.contains("s3cret"), "{url}: {reason}");
        }
    }
}
