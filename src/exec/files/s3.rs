//! Any storage that speaks S3: one PUT, signed with the SHA-256 of the file, which the server
//! checks.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST};
use http::{HeaderName, HeaderValue, Method};
use url::Url;

use super::error::{FilesError, UploadFault};
use super::object;
use super::upload::{Upload, file_request, send};
use crate::catalog::files::S3;
use crate::credential::Attachment;
use crate::exec::ExecContext;
use crate::exec::sigv4::{Signer, host};
use crate::keyring::Secret;

pub async fn upload(
    file: &Upload,
    settings: &S3,
    access_key: &Secret,
    secret_key: &Secret,
    source: Option<IpAddr>,
    context: ExecContext<'_>,
) -> Result<String, FilesError> {
    let unusable = || UploadFault::UnusableKey(settings.access_key.clone());
    let id = std::str::from_utf8(access_key.expose()).map_err(|_| unusable())?;
    let url = object_url(settings, &object::name(&settings.prefix, &file.filename))?;
    let signer = Signer::now(id.trim(), secret_key, &settings.region);
    let mut request = file_request(Method::PUT, url.clone(), file);
    let digest = file.content.sha256_hex();
    let signed = [
        ("host", host(&url)),
        ("x-amz-content-sha256", digest.clone()),
        ("x-amz-date", signer.timestamp().to_owned()),
    ];
    let authorization = signer.authorization("PUT", &url, &signed, &digest);
    let headers = request.headers_mut();
    for (name, value) in &signed {
        let value = HeaderValue::from_str(value).map_err(|_| unusable())?;
        headers.insert(HeaderName::from_static(name), value);
    }
    // The client writes it from the URL.
    headers.remove(HOST);
    let mut value = HeaderValue::from_str(&authorization).map_err(|_| unusable())?;
    value.set_sensitive(true);
    headers.insert(AUTHORIZATION, value);
    let answer = send(request, context.clients.unguarded(), source, context).await?;
    let own = [access_key.expose(), secret_key.expose()].into_iter();
    answer.into_success(&Attachment::default().with_redacted(own))?;
    Ok(match settings.presign {
        None => url.into(),
        Some(time) => signer.presigned("GET", &url, time),
    })
}

/// With an endpoint of one's own, the bucket is part of the path: few of them have a name for each
/// bucket. Amazon's has, except for buckets with a dot, whose names no certificate covers.
fn object_url(settings: &S3, name: &str) -> Result<Url, UploadFault> {
    let (bucket, name) = (object::encoded(&settings.bucket), object::encoded(name));
    let region = &settings.region;
    let text = match &settings.endpoint {
        Some(endpoint) => {
            let base = endpoint.as_str().trim_end_matches('/');
            format!("{base}/{bucket}/{name}")
        }
        None if bucket.contains('.') => {
            format!("https://s3.{region}.amazonaws.com/{bucket}/{name}")
        }
        None => format!("https://{bucket}.s3.{region}.amazonaws.com/{name}"),
    };
    Url::parse(&text).map_err(|_| UploadFault::Answer("can't be had: bucket or region is no name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_is_in_the_host_of_amazon_and_in_the_path_of_others() {
        let mut settings = S3 {
            bucket: "b".into(),
            prefix: "p".into(),
            region: "eu-west-1".into(),
            endpoint: None,
            access_key: "a".into(),
            secret_key: "s".into(),
            presign: None,
        };
        let url = |settings: &S3| object_url(settings, "p/x y").unwrap().to_string();
        assert_eq!(
            url(&settings),
            "https://b.s3.eu-west-1.amazonaws.com/p/x%20y"
        );
        settings.bucket = "my.bucket".into();
        assert_eq!(
            url(&settings),
            "https://s3.eu-west-1.amazonaws.com/my.bucket/p/x%20y"
        );
        settings.endpoint = Some(Url::parse("http://10.0.0.1:9000").unwrap());
        assert_eq!(url(&settings), "http://10.0.0.1:9000/my.bucket/p/x%20y");
    }
}
