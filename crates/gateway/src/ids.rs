//! Ids in paths. One that cannot exist is answered as one that does not.

use std::str::FromStr;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;

use crate::problem::{ApiError, ApiResult};

/// The one parameter of a path.
#[derive(Debug)]
pub(crate) struct Id<A>(pub(crate) A);

/// The two parameters of a path.
#[derive(Debug)]
pub(crate) struct Ids<A, B>(pub(crate) A, pub(crate) B);

impl<S: Send + Sync, A: FromStr> FromRequestParts<S> for Id<A> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        let parameters = parameters(parts, state).await?;
        nth(&parameters, 0).map(Self)
    }
}

impl<S: Send + Sync, A: FromStr, B: FromStr> FromRequestParts<S> for Ids<A, B> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> ApiResult<Self> {
        let parameters = parameters(parts, state).await?;
        Ok(Self(nth(&parameters, 0)?, nth(&parameters, 1)?))
    }
}

async fn parameters<S: Send + Sync>(parts: &mut Parts, state: &S) -> ApiResult<RawPathParams> {
    RawPathParams::from_request_parts(parts, state).await.map_err(|_| ApiError::not_found())
}

fn nth<A: FromStr>(parameters: &RawPathParams, place: usize) -> ApiResult<A> {
    let (_, text) = parameters.iter().nth(place).ok_or_else(ApiError::not_found)?;
    text.parse().map_err(|_| ApiError::not_found())
}
