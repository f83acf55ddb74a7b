//! The routes that make vectors, scores and classes of texts, as the document tells them.

use super::routes::{Answer, OPEN, RUNS, Route};

const RERANK: Route = Route {
    path: "/rerank",
    name: "rerank",
    summary: "Documents in the order in which they answer a query.",
    request: &["AnyRerankRequest"],
    answer: Answer::Json("AnyRerankAnswer"),
    ..RUNS
};

const SCORE: Route = Route {
    path: "/score",
    name: "score",
    summary: "How well texts go together, pair by pair.",
    request: &["ScoreRequest", "PoolingFields"],
    answer: Answer::Json("ScoreAnswer"),
    ..RUNS
};

const CLASSIFY: Route = Route {
    path: "/classify",
    name: "classify",
    summary: "How well texts fit each class of the model.",
    request: &["ClassifyRequest", "ConversationFields", "EmbeddingSource", "PoolingFields"],
    answer: Answer::Json("ClassifyAnswer"),
    ..RUNS
};

const POOLING: Route = Route {
    path: "/pooling",
    name: "pool",
    summary: "What the model makes of texts, as numbers.",
    request: &["PoolingRequest", "ConversationFields", "EmbeddingSource", "PoolingFields"],
    answer: Answer::JsonOrBytes("PoolingAnswer"),
    ..RUNS
};

pub(super) const VECTOR_ROUTES: &[Route] = &[
    Route {
        path: "/v1/embeddings",
        name: "createEmbedding",
        summary: "Texts as vectors.",
        request: &["EmbeddingsRequest", "ConversationFields", "EmbeddingSource"],
        answer: Answer::JsonOrBytes("EmbeddingList"),
        ..RUNS
    },
    RERANK,
    Route {
        path: "/v1/rerank",
        name: "createRerank",
        request: &["RerankRequest", "PoolingFields"],
        answer: Answer::Json("RerankAnswer"),
        ..RERANK
    },
    Route {
        path: "/v2/rerank",
        name: "createRerankV2",
        request: &["RerankRequest", "PoolingFields"],
        answer: Answer::Json("RerankAnswer"),
        ..RERANK
    },
    SCORE,
    Route { path: "/v1/score", name: "createScores", ..SCORE },
    CLASSIFY,
    Route { path: "/v1/classify", name: "createClasses", ..CLASSIFY },
    POOLING,
    Route { path: "/v1/pooling", name: "createPooling", ..POOLING },
    Route {
        path: "/v2/embed",
        name: "createEmbeddingsByType",
        summary: "Texts as vectors in Cohere's shape.",
        request: &["CohereEmbedRequest"],
        answer: Answer::Json("CohereEmbedAnswer"),
        ..RUNS
    },
    Route {
        path: "/embed",
        name: "embed",
        summary: "Texts as vectors in the shape of text-embeddings-inference.",
        request: &["TeiEmbedRequest", "TeiFields"],
        answer: Answer::Json("TeiVectors"),
        ..RUNS
    },
    Route {
        path: "/embed_all",
        name: "embedAll",
        summary: "The vectors of all tokens in the shape of text-embeddings-inference.",
        request: &["TeiEmbedRequest", "TeiFields"],
        answer: Answer::Json("TeiTokenVectors"),
        ..RUNS
    },
    Route {
        path: "/embed_sparse",
        name: "embedSparse",
        summary: "Weights of the vocabulary's tokens in the shape of text-embeddings-inference.",
        request: &["TeiEmbedSparseRequest", "TeiFields"],
        answer: Answer::Json("TeiSparseVectors"),
        ..RUNS
    },
    Route {
        path: "/predict",
        name: "predict",
        summary: "The classes of texts in the shape of text-embeddings-inference.",
        request: &["TeiPredictRequest", "TeiFields"],
        answer: Answer::Json("TeiPredictions"),
        ..RUNS
    },
    Route {
        path: "/similarity",
        name: "similarity",
        summary: "How similar sentences are to one.",
        request: &["TeiSimilarityRequest"],
        answer: Answer::Json("TeiScores"),
        ..RUNS
    },
    Route {
        path: "/info",
        name: "getInfo",
        summary: "The model in the shape of text-embeddings-inference.",
        answer: Answer::Json("TeiInfo"),
        ..OPEN
    },
];
