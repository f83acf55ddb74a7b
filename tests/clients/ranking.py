#!/usr/bin/env python3
"""Reranking, scores, classes and embeddings by clients of other projects: Cohere's SDK, and
LlamaIndex's for text-embeddings-inference.

    ranking.py [--binary target/debug/sconce]

Starts the servers itself, on tiny random models. What sentence-transformers and transformers compute
with them lies beside them (`tests/fixtures/make_classifiers.py`); what no such file holds is compared
with what this server's other routes say.
"""

import argparse
import json
import math
import pathlib
import sys

import cohere
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

from serving import Server, checks

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures"
RANKERS = ["bert_rank", "roberta_rank", "electra_rank", "qwen3_rank", "modern_bert_rank", "gte_rank",
           "deberta_rank"]


def near(ours, theirs, bound=1e-5):
    ours, theirs = list(ours), list(theirs)
    assert len(ours) == len(theirs), (ours, theirs)
    for a, b in zip(ours, theirs):
        assert abs(a - b) < bound, (ours, theirs)


def references(name):
    return json.loads((FIXTURES / "classifiers" / name / "reference.json").read_text())


def serve(binary, folder, *flags):
    exact = ("--kv-cache-dtype", "f32", "--kv-cache-memory", "8MiB") if "qwen3" in folder.name else ()
    return Server(binary, "--model", str(folder), "--served-model-name", "m", "--dtype", "f32",
                  *exact, *flags)


def sdk(server):
    return cohere.ClientV2(api_key="none", base_url=server.url)


def check_rankers(check, binary, name):
    pairs = references(name)
    with serve(binary, FIXTURES / "classifiers" / name) as server:
        with check(f"{name}: Cohere's v2.rerank gives CrossEncoder's scores, best first"):
            for pair in pairs:
                query, document = pair["texts"]
                answer = sdk(server).rerank(model="m", query=query, documents=[document])
                near([answer.results[0].relevance_score], pair["scores"])
            documents = [pair["texts"][1] for pair in pairs]
            answer = sdk(server).rerank(model="m", query="a fox", documents=documents, top_n=3)
            scores = [result.relevance_score for result in answer.results]
            assert len(scores) == 3 and scores == sorted(scores, reverse=True)
            assert answer.meta.billed_units.search_units == 1
        with check(f"{name}: /score, one beside several and pair by pair"):
            first = [pair["texts"][0] for pair in pairs]
            second = [pair["texts"][1] for pair in pairs]
            status, answer = server.post("/score", {"model": "m", "text_1": first, "text_2": second})
            assert status == 200, answer
            near([one["score"] for one in answer["data"]], [pair["scores"][0] for pair in pairs])
            raw = {"queries": first[0], "documents": second, "use_activation": False}
            status, answer = server.post("/v1/score", raw)
            near([answer["data"][0]["score"]], pairs[0]["logits"])
            assert answer["usage"]["prompt_tokens"] > 0 and len(answer["data"]) == 4
            status, answer = server.post("/score", {"text_1": first[:2], "text_2": second[:3]})
            assert status == 400 and "2 and 3" in answer["error"]["message"], answer
        with check(f"{name}: LlamaIndex's reranker for text-embeddings-inference"):
            ranker = TextEmbeddingInference(base_url=server.url, top_n=2)
            nodes = [NodeWithScore(node=TextNode(text=pair["texts"][1])) for pair in pairs]
            ranked = ranker.postprocess_nodes(nodes, QueryBundle(query_str="a fox"))
            status, answer = server.post("/rerank", {"query": "a fox", "texts": second,
                                                     "raw_scores": False})
            assert status == 200 and len(ranked) == 2, answer
            near([node.score for node in ranked], [one["score"] for one in answer[:2]])
            status, answer = server.post("/v1/rerank", {"query": "a fox", "documents": second})
            near([one["relevance_score"] for one in answer["results"][:2]],
                 [node.score for node in ranked])
        with check(f"{name}: long documents are refused or cut"):
            long = "the dog " * 300
            status, answer = server.post("/rerank", {"query": "fox", "documents": [long]})
            assert status == 400 and answer["error"]["code"] == "context_length_exceeded", answer
            status, answer = server.post("/rerank", {"query": "fox", "texts": [long]})
            assert status == 413 and answer["error_type"] == "Validation", answer
            for fields in ({"truncate_prompt_tokens": -1}, {"max_tokens_per_doc": 5}):
                body = {"query": "fox", "documents": [long], **fields}
                status, answer = server.post("/rerank", body)
                assert status == 200, answer
            status, answer = server.post("/rerank", {"query": "fox", "texts": [long],
                                                     "truncate": True})
            assert status == 200, answer


def check_classes(check, binary):
    for name, labels in [("bert_emotions", ["joy", "anger", "fear"]),
                         ("distilbert_topics", ["LABEL_0", "LABEL_1"])]:
        texts = references(name)
        with serve(binary, FIXTURES / "classifiers" / name) as server:
            with check(f"{name}: /classify and /predict give transformers' probabilities"):
                inputs = [one["texts"][0] for one in texts]
                status, answer = server.post("/classify", {"input": inputs})
                assert status == 200, answer
                for one, reference in zip(answer["data"], texts):
                    near(one["probs"], reference["scores"])
                    best = max(range(len(labels)), key=lambda at: reference["scores"][at])
                    assert one["label"] == labels[best] and one["num_classes"] == len(labels)
                status, answer = server.post("/predict", {"inputs": inputs[0], "raw_scores": True})
                near([one["score"] for one in answer], sorted(texts[0]["logits"], reverse=True))
                status, answer = server.post("/predict", {"inputs": [[text] for text in inputs]})
                assert len(answer) == len(inputs), answer
                status, answer = server.post("/pooling", {"input": inputs, "task": "classify"})
                near(answer["data"][0]["data"], texts[0]["scores"])
            with check(f"{name}: what the model can't do is said"):
                for path, body in [("/v1/embeddings", {"input": "x"}),
                                   ("/score", {"text_1": "a", "text_2": "b"}),
                                   ("/pooling", {"input": "x", "task": "embed"})]:
                    status, answer = server.post(path, body)
                    assert status == 400 and "error" in answer, (path, answer)
                status, _ = server.post("/v1/chat/completions", {"messages": []})
                assert status == 400
    texts = references("bert_tokens")
    with serve(binary, FIXTURES / "classifiers/bert_tokens") as server:
        with check("bert_tokens: /pooling gives every token's classes"):
            inputs = [one["texts"][0] for one in texts]
            status, answer = server.post("/pooling", {"input": inputs, "task": "token_classify"})
            assert status == 200, answer
            for one, reference in zip(answer["data"], texts):
                near(sum(one["data"], []), reference["scores"])
                assert len(one["data"]) == len(reference["ids"])


def check_embeddings(check, binary):
    folder = FIXTURES / "embeddings/bert_mean"
    texts = json.loads((folder / "reference.json").read_text())
    inputs = [one["text"] for one in texts]
    with serve(binary, folder) as server:
        with check("Cohere's v2.embed: floats, whole numbers and bits"):
            kinds = ["float", "int8", "uint8", "binary", "ubinary"]
            answer = sdk(server).embed(model="m", texts=inputs, input_type="search_document",
                                       embedding_types=kinds)
            for vector, reference in zip(answer.embeddings.float_, texts):
                near(vector, reference["embedding"])
            first = texts[0]["embedding"]
            assert answer.embeddings.int8[0] == [round(x * 127) for x in first]
            bits = sum((x > 0) << (7 - at) for at, x in enumerate(first[:8]))
            assert answer.embeddings.ubinary[0][0] == bits
            assert answer.embeddings.binary[0][0] == bits - 128
            assert len(answer.embeddings.ubinary[0]) == len(first) // 8
            assert answer.meta.billed_units.input_tokens == sum(len(one["ids"]) for one in texts)
        with check("LlamaIndex's embeddings of text-embeddings-inference"):
            model = TextEmbeddingsInference(base_url=server.url, model_name="m")
            near(model.get_text_embedding(inputs[0]), texts[0]["embedding"])
            for vector, reference in zip(model.get_text_embedding_batch(inputs), texts):
                near(vector, reference["embedding"])
        with check("/similarity, /score and /rerank of an embedding model are cosines"):
            cosine = sum(a * b for a, b in zip(texts[0]["embedding"], texts[1]["embedding"]))
            sentences = {"source_sentence": inputs[0], "sentences": inputs[1:3]}
            status, answer = server.post("/similarity", {"inputs": sentences})
            assert status == 200 and abs(answer[0] - cosine) < 1e-5, answer
            status, answer = server.post("/score", {"text_1": inputs[0], "text_2": inputs[1]})
            assert abs(answer["data"][0]["score"] - cosine) < 1e-5, answer
            status, answer = server.post("/rerank", {"query": inputs[0], "documents": inputs[1:2]})
            assert abs(answer["results"][0]["relevance_score"] - cosine) < 1e-5, answer
        with check("hidden states of tokens: their mean is the pooled one"):
            status, answer = server.post("/embed_all", {"inputs": inputs[0]})
            rows = answer[0]
            assert status == 200 and len(rows) == len(texts[0]["ids"]), answer
            near([sum(column) / len(rows) for column in zip(*rows)], texts[0]["pooled"]["mean"])
            body = {"input": inputs[0], "task": "token_embed"}
            status, answer = server.post("/pooling", body)
            assert status == 200 and answer["data"][0]["data"] == rows
        with check("/info and errors as text-embeddings-inference tells them"):
            _, _, body = server.request("GET", "/info")
            info = json.loads(body)
            assert info["model_type"] == {"embedding": {"pooling": "mean"}}, info
            assert info["max_input_length"] == 24
            status, answer = server.post("/embed", {"inputs": []})
            assert status == 422 and set(answer) == {"error", "error_type"}, answer
            status, answer = server.post("/embed", {"inputs": "dog " * 99})
            assert status == 413 and answer["error_type"] == "Validation", answer


def check_sparse(check, binary):
    """A model that weighs the tokens of its vocabulary."""
    texts = json.loads((FIXTURES / "embeddings/splade_bert/reference.json").read_text())
    # One is longer than the model takes, and was cut.
    texts = [one for one in texts if len(one["ids"]) < 40]
    weights = [dict(one["weights"]) for one in texts]
    inputs = [one["text"] for one in texts]
    with serve(binary, FIXTURES / "embeddings/splade_bert") as server:
        with check("splade_bert: /embed_sparse has SparseEncoder's weights, and no others"):
            status, answer = server.post("/embed_sparse", {"inputs": inputs})
            assert status == 200, answer
            for vector, theirs in zip(answer, weights):
                assert [one["index"] for one in vector] == sorted(theirs)
                near([one["value"] for one in vector], [theirs[at] for at in sorted(theirs)])
        with check("all weights by /v1/embeddings, and products of them by /score"):
            status, answer = server.post("/v1/embeddings", {"input": inputs[0]})
            vector = answer["data"][0]["embedding"]
            near(vector, [weights[0].get(at, 0.0) for at in range(len(vector))])
            product = sum(weight * weights[1].get(at, 0) for at, weight in weights[0].items())
            status, answer = server.post("/score", {"text_1": inputs[0], "text_2": inputs[1]})
            assert abs(answer["data"][0]["score"] - product) < 1e-4, answer
    with serve(binary, FIXTURES / "embeddings/bert_mean") as server:
        with check("a model without such weights says so"):
            status, answer = server.post("/embed_sparse", {"inputs": "x"})
            assert status != 200 and "splade" in answer["error"], answer


def check_several(check, binary):
    """BGE-M3: one model with a vector of a text, and a weight and a vector of every token."""
    texts = json.loads((FIXTURES / "embeddings/bge_m3/reference.json").read_text())
    texts = [one for one in texts if len(one["ids"]) < 38]
    inputs = [one["text"] for one in texts]
    with serve(binary, FIXTURES / "embeddings/bge_m3") as server:
        with check("bge_m3: /v1/embeddings, /embed_sparse and /pooling have FlagEmbedding's numbers"):
            status, answer = server.post("/v1/embeddings", {"input": inputs})
            for one, theirs in zip(answer["data"], texts):
                near(one["embedding"], theirs["embedding"])
            status, answer = server.post("/embed_sparse", {"inputs": inputs})
            assert status == 200, answer
            for vector, theirs in zip(answer, texts):
                assert [one["index"] for one in vector] == [at for at, _ in theirs["sparse"]]
                near([one["value"] for one in vector], [x for _, x in theirs["sparse"]])
            status, answer = server.post("/pooling", {"input": inputs, "task": "token_embed"})
            for one, theirs in zip(answer["data"], texts):
                assert len(one["data"]) == len(theirs["vectors"])
                for ours, vector in zip(one["data"], theirs["vectors"]):
                    near(ours, vector)
            status, answer = server.post("/pooling", {"input": inputs, "task": "token_classify"})
            for one, theirs in zip(answer["data"], texts):
                near(one["data"], theirs["weights"][1:-1])
        with check("bge_m3: /score and /rerank compare what the request names"):
            first, second = texts[0], texts[1]
            pair = {"text_1": first["text"], "text_2": second["text"]}
            shared = dict(second["sparse"])
            products = sum(x * shared.get(at, 0) for at, x in first["sparse"])
            dot = lambda a, b: sum(x * y for x, y in zip(a, b))
            best = sum(max(dot(own, other) for other in second["vectors"]) for own in first["vectors"])
            cosine = dot(first["embedding"], second["embedding"])
            for task, expected in [("token_classify", products), ("token_embed", best),
                                   ("embed", cosine), (None, cosine)]:
                status, answer = server.post("/score", pair | ({"task": task} if task else {}))
                assert abs(answer["data"][0]["score"] - expected) < 1e-4, (task, answer, expected)
            body = {"query": inputs[0], "documents": inputs[1:2], "task": "token_embed"}
            status, answer = server.post("/rerank", body)
            assert abs(answer["results"][0]["relevance_score"] - best) < 1e-4, answer


def check_long_texts(check, binary):
    """Texts that are longer than the model takes, in pieces."""
    with serve(binary, FIXTURES / "embeddings/bert_mean", "--max-embed-len", "60") as server:
        with check("the vector of a long text is the mean of its pieces', by their tokens"):
            text = "dog " * 40
            _, tokens = server.post("/tokenize", {"prompt": text})
            ids = tokens["tokens"]
            assert len(ids) == 42
            pieces = [ids[:24], ids[24:]]
            _, answer = server.post("/v1/embeddings", {"input": [ids, *pieces]})
            whole, *parts = [one["embedding"] for one in answer["data"]]
            mean = [sum(len(piece) * x for piece, x in zip(pieces, column)) for column in zip(*parts)]
            length = math.sqrt(sum(x * x for x in mean))
            near(whole, [x / length for x in mean])
            _, answer = server.post("/v1/embeddings", {"input": text})
            assert answer["data"][0]["embedding"] == whole
            assert answer["usage"]["prompt_tokens"] == 42
        with check("one that is longer still is refused with the bound"):
            status, answer = server.post("/v1/embeddings", {"input": "dog " * 80})
            assert status == 400 and "60 tokens" in answer["error"]["message"], answer


def check_reranker_by_words(check, binary):
    """A model that continues texts, with a template and words of its own."""
    pairs = references("qwen3_words_rank")
    with serve(binary, FIXTURES / "classifiers/qwen3_words_rank") as server:
        with check("qwen3_words_rank: scores are CrossEncoder's, through Cohere's SDK too"):
            for pair in pairs:
                query, document = pair["texts"]
                answer = sdk(server).rerank(model="m", query=query, documents=[document])
                near([answer.results[0].relevance_score], pair["scores"])
            status, answer = server.post("/score", {
                "text_1": [pair["texts"][0] for pair in pairs],
                "text_2": [pair["texts"][1] for pair in pairs], "use_activation": False})
            assert status == 200, answer
            near([1 / (1 + math.exp(-one["score"])) for one in answer["data"]],
                 [pair["scores"][0] for pair in pairs])


def check_words(check, binary):
    """A model that continues texts: the demo, which knows nothing of search, but has words."""
    with Server(binary) as server:
        with check("a chat model's score is how likely yes is among yes and no"):
            documents = ["Lamps give light.", "A fox ran over the hill."]
            status, answer = server.post("/score", {"text_1": "lamp", "text_2": documents})
            assert status == 200, answer
            model = server.model()

            def tokens_of(words):
                found = [server.post("/tokenize", {"prompt": word, "add_special_tokens": False})[1]
                         for word in words.split()]
                single = all(len(one["tokens"]) == 1 for one in found)
                return [one["tokens"][0] for one in found] if single else None

            asked = ("<Instruct>: Given a web search query, retrieve relevant passages that answer "
                     "the query\n<Query>: lamp\n<Document>: ")
            system = ("Judge whether the Document meets the requirements based on the Query and the "
                      "Instruct provided. Note that the answer can only be \"yes\" or \"no\".")
            for one, document in zip(answer["data"], documents):
                messages = [{"role": "system", "content": system},
                            {"role": "user", "content": asked + document}]
                _, rendered = server.post("/v1/chat/completions/render", {
                    "model": model, "enable_thinking": False, "messages": messages})
                words = next(filter(None, map(tokens_of, ("yes no", "Yes No", "y n"))))
                _, completed = server.post("/v1/completions", {
                    "prompt": rendered["token_ids"], "max_tokens": 1, "logprobs": 1,
                    "temperature": 0, "logprob_token_ids": words,
                    "return_tokens_as_token_ids": True})
                told = completed["choices"][0]["logprobs"]["top_logprobs"][0]
                yes, no = (math.exp(told[f"token_id:{token}"]) for token in words)
                assert abs(one["score"] - yes / (yes + no)) < 1e-5, (one, yes, no)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "target/debug/sconce"))
    arguments = parser.parse_args()
    with checks() as check:
        for name in RANKERS:
            check_rankers(check, arguments.binary, name)
        check_classes(check, arguments.binary)
        check_embeddings(check, arguments.binary)
        check_sparse(check, arguments.binary)
        check_several(check, arguments.binary)
        check_long_texts(check, arguments.binary)
        check_reranker_by_words(check, arguments.binary)
        check_words(check, arguments.binary)
    return check.exit_status()


if __name__ == "__main__":
    sys.exit(main())
