//! The one preamble of all handlers: a request's body as wire structs, its model, when it came, and
//! the fields that nobody read.

use axum::extract::{FromRequest, Request};
use serde_json::Value;

use super::arrival::Arrival;
use super::body::JsonBody;
use super::fields::{BodyReader, FieldReader};
use super::rules::{COMMON, Rules};
use crate::engine::adapter::Adapter;
use crate::http::error::ApiError;
use crate::http::state::AppState;
use crate::http::state::caller::Caller;

/// What the body of a route's request is read into.
pub(crate) trait RequestBody: Sized {
    /// The fields that are known without being in a struct.
    const RULES: &'static [Rules] = &[COMMON];

    /// Reads every struct that has fields of this body.
    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError>;

    /// The model that the request names; the served one, if it names none.
    fn model(&self) -> Option<&str> {
        None
    }

    /// Checks that the model is served which the request names: the adapter that it stands for.
    fn check_model(state: &AppState, named: Option<&str>) -> Result<Option<Adapter>, ApiError> {
        state.check_model(named)
    }
}

/// A request whose fields have the right types.
#[derive(Debug)]
pub(crate) struct Extracted<T> {
    pub(crate) body: T,
    /// The model's name as the request has it, else the served one's.
    pub(crate) model: String,
    /// What the request's model adds to the served one.
    pub(crate) adapter: Option<Adapter>,
    pub(crate) arrival: Arrival,
    /// For the objects that stay JSON until their variant is known.
    pub(crate) fields: FieldReader,
}

impl<T: RequestBody> FromRequest<AppState> for Extracted<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        Ok(Whole::from_request(request, state).await?.request)
    }
}

/// A request that is read, and its body as it came.
#[derive(Debug)]
pub(crate) struct Whole<T> {
    pub(crate) json: Value,
    pub(crate) request: Extracted<T>,
}

impl<T: RequestBody> FromRequest<AppState> for Whole<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let arrival = Arrival::now(request.headers(), request.extensions())?;
        let JsonBody(json) = JsonBody::from_request(request, state).await?;
        let request = Extracted::read(&json, arrival, state)?;
        Ok(Self { json, request })
    }
}

impl<T: RequestBody> Extracted<T> {
    /// Reads a body that came with a request which arrived at `arrival`.
    pub(crate) fn read(json: &Value, arrival: Arrival, state: &AppState) -> Result<Self, ApiError> {
        let mut reader = BodyReader::new(json);
        let body = T::read(&mut reader)?;
        let named = body.model().filter(|name| !name.is_empty());
        let adapter = T::check_model(state, named)?;
        let model = named.unwrap_or(state.model_name()).to_owned();
        if let Some(caller) = Caller::current() {
            caller.set_model(&model);
        }
        let mut fields = FieldReader::new(T::RULES);
        reader.finish(&mut fields)?;
        Ok(Self { body, model, adapter, arrival, fields })
    }
}
