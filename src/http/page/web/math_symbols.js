// Commands of TeX and the characters that they stand for.

const table = (tag, text) => Object.fromEntries(text.trim().split(/\s+/).map((pair) => {
  const at = pair.lastIndexOf(":");
  return [pair.slice(0, at), [tag, pair.slice(at + 1)]];
}));

export const SYMBOLS = {
  ...table("mi", `
    alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι kappa:κ lambda:λ mu:μ
    nu:ν xi:ξ omicron:ο pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ varsigma:ς tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω
    Gamma:Γ Delta:Δ Theta:Θ Lambda:Λ Xi:Ξ Pi:Π Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω
    infty:∞ partial:∂ nabla:∇ hbar:ℏ ell:ℓ Re:ℜ Im:ℑ aleph:ℵ wp:℘ imath:ı jmath:ȷ emptyset:∅ varnothing:∅ angle:∠
    top:⊤ bot:⊥ degree:° prime:′ dots:… ldots:… cdots:⋯ vdots:⋮ ddots:⋱ dotsc:… dotsb:⋯ square:□ Box:□ blacksquare:■
    $:$ %:% #:# &:& _:_ triangle:△ star:⋆ checkmark:✓ dagger:† S:§ pounds:£ euro:€ qed:□`),
  ...table("mo", `
    times:× cdot:⋅ div:÷ pm:± mp:∓ ast:∗ circ:∘ bullet:∙ oplus:⊕ ominus:⊖ otimes:⊗ odot:⊙ wedge:∧ land:∧ vee:∨ lor:∨
    cap:∩ cup:∪ setminus:∖ neg:¬ lnot:¬ forall:∀ exists:∃ nexists:∄ in:∈ notin:∉ ni:∋ subset:⊂ supset:⊃ subseteq:⊆
    supseteq:⊇ subsetneq:⊊ le:≤ leq:≤ leqslant:⩽ ge:≥ geq:≥ geqslant:⩾ lt:< gt:> ne:≠ neq:≠ equiv:≡ approx:≈ sim:∼
    simeq:≃ cong:≅ propto:∝ ll:≪ gg:≫ prec:≺ succ:≻ preceq:⪯ succeq:⪰ parallel:∥ perp:⟂ mid:∣ nmid:∤ vdash:⊢ models:⊨
    therefore:∴ because:∵ colon:: to:→ rightarrow:→ leftarrow:← leftrightarrow:↔ Rightarrow:⇒ implies:⟹ Leftarrow:⇐
    Leftrightarrow:⇔ iff:⟺ Longrightarrow:⟹ longrightarrow:⟶ longleftarrow:⟵ mapsto:↦ uparrow:↑ downarrow:↓ updownarrow:↕
    hookrightarrow:↪ rightharpoonup:⇀ leadsto:⇝ rightleftharpoons:⇌ langle:⟨ rangle:⟩ lceil:⌈ rceil:⌉ lfloor:⌊ rfloor:⌋
    lvert:| rvert:| vert:| lVert:‖ rVert:‖ Vert:‖ {:{ }:} |:‖ lbrace:{ rbrace:} backslash:∖ coloneqq:≔ triangleq:≜ doteq:≐
    lbrack:[ rbrack:] bowtie:⋈ ltimes:⋉ sqcup:⊔ sqcap:⊓ amalg:⨿ dagger:† ddagger:‡ trianglelefteq:⊴ asymp:≍`),
};

// With limits above and below, or beside.
export const LARGE = {
  sum: ["∑", true], prod: ["∏", true], coprod: ["∐", true], bigcup: ["⋃", true], bigcap: ["⋂", true], bigoplus: ["⨁", true],
  bigotimes: ["⨂", true], bigvee: ["⋁", true], bigwedge: ["⋀", true], bigsqcup: ["⨆", true],
  int: ["∫", false], iint: ["∬", false], iiint: ["∭", false], oint: ["∮", false],
};

export const SPACES = {
  ",": "0.17em", ":": "0.22em", ">": "0.22em", ";": "0.28em", "!": "-0.17em", " ": "0.33em", "\n": "0.33em", quad: "1em", qquad: "2em",
  enspace: "0.5em", thinspace: "0.17em",
};

export const FUNCTIONS = new Set(("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth exp log ln lg lim max min sup inf " +
  "limsup liminf det dim ker hom deg gcd arg Pr").split(" "));

// Mark, whether it stands below, whether it is as wide as what it marks.
export const ACCENTS = {
  hat: ["^", false, false], widehat: ["^", false, true], bar: ["¯", false, false], overline: ["¯", false, true], vec: ["→", false, false],
  overrightarrow: ["→", false, true], tilde: ["~", false, false], widetilde: ["~", false, true], dot: ["˙", false, false],
  ddot: ["¨", false, false], check: ["ˇ", false, false], breve: ["˘", false, false], acute: ["´", false, false], grave: ["`", false, false],
  underline: ["_", true, true], overbrace: ["⏞", false, true], underbrace: ["⏟", true, true],
};

// A function from a letter to the one of an alphabet that begins at these places for A, a and 0; some
// letters were in Unicode before the rest.
function alphabet(upper, lower, digit, exceptions = {}) {
  return (letter) => {
    if (letter in exceptions) return exceptions[letter];
    const code = letter.codePointAt(0);
    if (letter >= "A" && letter <= "Z" && upper) return String.fromCodePoint(upper + code - 65);
    if (letter >= "a" && letter <= "z" && lower) return String.fromCodePoint(lower + code - 97);
    return letter >= "0" && letter <= "9" && digit ? String.fromCodePoint(digit + code - 48) : letter;
  };
}

const bold = alphabet(0x1d400, 0x1d41a, 0x1d7ce);
const doubleStruck = alphabet(0x1d538, 0x1d552, 0x1d7d8, { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" });
const script = alphabet(0x1d49c, 0x1d4b6, 0, { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" });
const fraktur = alphabet(0x1d504, 0x1d51e, 0, { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" });

export const ALPHABETS = {
  mathbf: bold, boldsymbol: bold, bm: bold, mathbb: doubleStruck, mathcal: script, mathscr: script, mathfrak: fraktur,
  mathit: (letter) => letter, mathsf: alphabet(0x1d5a0, 0x1d5ba, 0x1d7e2), mathtt: alphabet(0x1d670, 0x1d68a, 0x1d7f6),
};
