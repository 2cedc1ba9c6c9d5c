use super::*;
use crate::store::kit::description::StoreUrl;

fn parse(url: &str) -> RedisUrl {
    RedisUrl::parse(url).unwrap_or_else(|reason| panic!("{url}: {reason}"))
}

fn at(host: &str, port: u16) -> HostPort {
    HostPort { host: host.into(), port }
}

fn login(username: &str, password: &str) -> Login {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Login { username: text(username), password: text(password), provider: None }
}

#[test]
fn the_name_has_the_addresses_without_credentials() {
    for (url, name) in [
        ("redis://10.0.0.1", "10.0.0.1:6379"),
        ("REDIS://10.0.0.1:6379", "10.0.0.1:6379"),
        ("redis://app:s3cret@cache.local:7000/2", "cache.local:7000/2"),
        ("redis://[::1]", "[::1]:6379"),
        ("valkey://[::1]:7000", "[::1]:7000"),
        ("unix:///run/redis.sock?pass=s3cret&db=1", "/run/redis.sock/1"),
        ("redis+unix:///run/redis.sock", "/run/redis.sock"),
        ("unix:///run/my%20redis@1.sock?pass=s3c@ret", "/run/my redis@1.sock"),
        ("redis+sentinel://:s3cret@h1,h2:7000,[::1]/shop/3", "shop@h1:26379,h2:7000,[::1]:26379/3"),
        ("redis-cluster://:s3cret@h1,h2:7000", "h1:6379,h2:7000"),
        ("redis-cluster://:s3cret@h1,h2:7000/1", "h1:6379,h2:7000/1"),
    ] {
        assert_eq!(parse(url).name(), name, "{url}");
    }
}

#[test]
fn a_sentinel_url_has_two_logins() {
    let url = parse(
        "redis+sentinel://app:s3%40cret@h1,h2:7000/my%20shop/2?sentinel_username=watch&sentinel_password=other",
    );
    assert_eq!((url.login, url.db, url.tls), (login("app", "s3@cret"), 2, None));
    let sentinels = vec![at("h1", 26379), at("h2", 7000)];
    let (service, login) = ("my shop".into(), login("watch", "other"));
    assert_eq!(url.servers, Servers::Sentinel { sentinels, service, login });
}

/// A wrong fallback would send the password of the servers to the sentinels.
#[test]
fn sentinels_do_not_get_the_credentials_of_the_servers() {
    let Servers::Sentinel { login, .. } = parse("redis+sentinel://app:s3cret@h1/shop").servers
    else {
        panic!();
    };
    assert_eq!(login, Login::default());
}

#[test]
fn the_spellings_of_other_libraries_mean_the_same() {
    let ours = parse(
        "redis+sentinel://app:s3cret@h1,h2:7000/shop/2?sentinel_username=u&sentinel_password=p",
    );
    for other in [
        "redis-sentinel://app:s3cret@h1:26379/2?sentinelServiceName=shop&node=h2:7000&sentinelUsername=u&sentinelPassword=p",
        "redis-sentinel://app:s3cret@h1,h2:7000/2?sentinelMasterId=shop&sentinelUsername=u&sentinelPassword=p",
        "valkey+sentinel://app:s3cret@h1,h2:7000,h1/shop/2?sentinel_username=u&sentinel_password=p",
        "valkey-sentinel://app:s3cret@h1,h2:7000/shop/2?sentinel_password=p&sentinel_username=u",
    ] {
        assert_eq!(parse(other), ours, "{other}");
    }
    let ours = parse("redis-cluster://app:s3cret@h1,h2:7000");
    for other in [
        "redis+cluster://app:s3cret@h1,h2:7000/",
        "valkey-cluster://app:s3cret@h1,h2:7000/0",
        "redis-cluster://app:s3cret@h1?node=h2:7000",
    ] {
        assert_eq!(parse(other), ours, "{other}");
    }
}

#[test]
#[cfg(feature = "tls")]
fn tls_has_its_files_in_the_query() {
    assert_eq!(parse("rediss://h").tls, Some(TlsOptions::default()));
    let files = TlsOptions::new().ca_file("/etc/my ca.pem").client_cert_files("/c.pem", "/k.pem");
    for url in ["rediss://h", "valkeys+sentinel://h/shop", "rediss-cluster://h"] {
        let url = format!("{url}?tls_ca=/etc/my%20ca.pem&tls_cert=/c.pem&tls_key=/k.pem");
        assert_eq!(parse(&url).tls.as_ref(), Some(&files), "{url}");
    }
    let all = TlsOptions::new().danger_accept_invalid_certs(true);
    for (query, alone, with_all) in [
        ("", false, true),
        ("?tls_insecure=true", true, true),
        ("?tls_insecure=false", false, false),
    ] {
        let tls = parse(&format!("rediss://h{query}")).tls.unwrap();
        assert_eq!((tls.is_insecure(), tls.or(&all).is_insecure()), (alone, with_all), "{query}");
    }
}

#[test]
fn a_password_may_be_in_a_file() {
    let login = |path: &str| Login {
        username: Some("app".into()),
        password: None,
        provider: Some(Provider::File(path.into())),
    };
    for url in [
        "redis://app@h?password_file=/run/my%20secret",
        "redis-cluster://app@h?password_file=/run/my%20secret",
        "redis+sentinel://app@h/shop?password_file=/run/my%20secret",
        "unix:///run/redis.sock?user=app&password_file=/run/my%20secret",
    ] {
        assert_eq!(parse(url).login, login("/run/my secret"), "{url}");
    }
    let url = "redis+sentinel://h/shop?sentinel_username=app&sentinel_password_file=/s";
    let Servers::Sentinel { login: of_sentinels, .. } = parse(url).servers else { panic!() };
    assert_eq!(of_sentinels, login("/s"));
    assert_eq!(parse(url).login, Login::default());
}

#[test]
fn a_wrong_url_is_explained_without_being_repeated() {
    let mut cases = vec![
        ("10.0.0.1", "no scheme"),
        ("http://:s3cret@10.0.0.1", "scheme is unknown"),
        ("http://:s3cret@10.0.0.1", "valkey://"),
        ("redis+unknown://:s3cret@10.0.0.1", "scheme is unknown"),
        ("redis:10.0.0.1", "slashes"),
        ("unix:s3cret", "two slashes are missing"),
        ("unix://", "its path is missing"),
        ("unix:///?pass=s3cret", "its path is missing"),
        ("unix://s3cret", "three are needed: write unix:///"),
        ("unix://run/s3cret.sock", "three are needed: write unix:///"),
        ("unix://app:s3cret@/run/redis.sock", "three are needed: write unix:///"),
        ("unix:///run/%0As3cret", "control character"),
        ("redis+sentinel://a/s3cret%0A", "control character"),
        ("redis+sentinel://a?sentinelServiceName=s3cret%0D", "control character"),
        ("rediss+unix:///s3cret", "scheme is unknown"),
        ("redis://%ff:s3cret@a", "not UTF-8"),
        ("redis://:s3cret@[::]", "no server has the address ::"),
        ("redis-cluster://:s3cret@a?node=b/c", "cannot be read"),
        ("redis://:s3cret@", "host is missing"),
        ("redis://:s3cret@host:99999", "allowed are"),
        ("redis://:s3cret@host/x", "database is not a number"),
        ("redis://:s3cret@0.0.0.0", "no server has the address 0.0.0.0"),
        ("redis://:s3cret@host/-1", "negative"),
        ("unix:///run/s3cret?db=-1", "negative"),
        ("redis://app:12#s3cret@host", "%23"),
        ("redis+sentinel://app:12#s3cret@host/shop", "%23"),
        ("redis://:s3cret@a,b", "comma"),
        ("redis://:s3cret@a,10.0.0.2:6380/1", "comma"),
        (
            "redis://:s3cret@a?timeout=s3cret",
            "its parameter \"timeout\" is unknown; known are db, user,",
        ),
        ("redis+sentinel://a/shop?sentinel_password=ab&s3cret", "%26"),
        ("redis+sentinel://a/shop?sentinel_password=ab&s3cret=x", "%26"),
        ("redis+sentinel://a?sentinel_password=ab#s3cret", "%23"),
        ("redis+sentinel://a/shop?sentinelPassword=ab#s3cret", "%23"),
        ("redis+sentinel://a?sentinelServiceName=shop&sentinel_password=ab#s3cret", "%23"),
        ("unix:///a?pass=ab&s3cret", "%26"),
        ("unix:///a?database=1", "its parameter \"database\" is unknown; known are db, user,"),
        ("unix:///a?pass=s3cret&pass=s3cret", "\"pass\""),
        ("unix:///a?tls_ca=/s3cret", "\"tls_ca\""),
        ("redis://:s3cret@a?sentinel_password=s3cret", "\"sentinel_password\""),
        ("redis+sentinel://:s3cret@a", "name of the Sentinel service"),
        ("redis+sentinel://:s3cret@a,,b/shop", "host is missing"),
        ("redis+sentinel://:s3cret@a,b:x/shop", "allowed are"),
        ("redis+sentinel://:s3cret@a/shop/1/2", "database is not a number"),
        ("redis+sentinel://:s3cret@a/shop?sentinel_username=app", "no sentinel_password"),
        (
            "redis+sentinel://a/shop?sentinel_password=s3cret&sentinel_password=s3cret",
            "\"sentinel_password\"",
        ),
        ("redis-cluster://:s3cret@a/x", "database is not a number"),
        ("redis-cluster://:s3cret@", "host is missing"),
        ("redis://:a?s3cret@h", "%3F"),
        ("redis://:1?b&s3cret=c@h", "%3F"),
        ("redis+sentinel://app:12/s3cret@h/shop", "%2F"),
        ("redis-cluster://app:12/s3cret@h", "%2F"),
        ("redis://:s3cret@a?password_file=/s3cret", "both a password and a password_file"),
        ("unix:///a?pass=s3cret&password_file=/s3cret", "both a password and a password_file"),
        ("redis://:s3cret@a?tls_ca=/s3cret", "write rediss"),
        ("redis://:s3cret@a/#insecure", "tls_insecure"),
    ];
    if cfg!(feature = "tls") {
        cases.extend([
            ("rediss://:s3cret@a/#insecure", "tls_insecure"),
            ("rediss://:s3cret@a?tls_cert=/s3cret", "belong together"),
            ("rediss://:s3cret@a?tls_insecure=s3cret", "neither true nor false"),
        ]);
    } else {
        cases.push(("rediss://:s3cret@a", "`tls`"));
    }
    for (url, words) in cases {
        let reason = RedisUrl::parse(url).unwrap_err();
        assert!(!reason.contains("s3cret"), "{reason}");
        assert!(reason.contains(words), "{url}: {reason}");
    }
}

#[test]
fn nothing_shows_the_credentials() {
    let url = "redis+sentinel://app:s3cret@h/shop?sentinel_username=app&sentinel_password=s3cret";
    let shown = format!("{:?}", parse(url));
    assert!(!shown.contains("s3cret") && !shown.contains("app"), "{shown}");
}
