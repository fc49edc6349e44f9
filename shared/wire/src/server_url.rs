//! Server addresses as they may be shown: an address can hold a password, and messages end up in logs.

/// The address, or several divided by commas, with whatever stands before an `@` replaced by `***`.
pub fn shown_url(url: &str) -> String {
    let one = |url: &str| {
        let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
        match rest.rsplit_once('@') {
            Some((_, host)) if scheme.is_empty() => format!("***@{host}"),
            Some((_, host)) => format!("{scheme}://***@{host}"),
            None => url.to_owned(),
        }
    };
    url.split(',').map(str::trim).map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::shown_url;

    #[test]
    fn no_password_is_shown() {
        let cases = [
            ("nats://hq:4222", "nats://hq:4222"),
            ("nats://user:secret@hq:4222", "nats://***@hq:4222"),
            ("token@hq", "***@hq"),
            ("nats://a:p@x@hq:1, tls://b:q@hq:2", "nats://***@hq:1,tls://***@hq:2"),
        ];
        for (url, shown) in cases {
            assert_eq!(shown_url(url), shown);
        }
    }
}
