/** Shapes of the read API and of what the charts are told. Times are seconds since 1970 UTC. */

export type Health = 'act' | 'look' | 'healthy' | 'lost' | 'finished' | 'failed' | 'stopped';
export type Cell = number | 'nan' | 'inf' | '-inf' | null;

export interface Spark { key: string; steps: number[]; values: Cell[] }
export interface RunSummary {
  id: string; name: string; kind: string; state: string; health: Health; sentence: string;
  created_at: number; last_seen_at: number; ended_at: number | null;
  last_step: number | null; planned_steps: number | null; tokens_seen: number | null;
  tokens_per_s: number | null; price_per_hour: number | null; currency: string;
  cost_so_far: number | null; finish_at: number | null; zone: string;
  open_alerts: { critical: number; warning: number; info: number }; spark: Spark | null;
}
export interface Attempt {
  id: string; ordinal: number; first_step: number; before_step: number | null;
  started_at: number; ended_at: number | null; status: string | null; last_step: number | null;
}
export interface Sleeper { what: string; missing: string; wake: string }
export interface Checkpoint { step: number; at: number; path: string | null }
export interface RunDetail extends RunSummary {
  facts: Record<string, unknown>; attempts: Attempt[]; asleep: Sleeper[];
  accounts: Record<string, number>; last_checkpoint: Checkpoint | null;
  series_count: number; cursor: string;
}
export interface SeriesInfo {
  key: string; name: string; group: string; source: string; unit: string; family: string;
  help: string; better: '' | 'lower' | 'higher'; last_step: number | null; last_value: Cell;
}
export interface PointSeries {
  key: string; attempt: string; ghost: boolean; resolution: 'raw' | 'bucket' | 'block';
  steps: number[]; times: number[]; values: Cell[]; low: Cell[] | null; high: Cell[] | null;
  non_finite: number[]; total_points: number;
  /** Means that leave points out: the row's step, points not finite, points in all. */
  mixed: [number, number, number][];
}
export interface RunEvent {
  attempt: string; name: string; step: number; at: number; text: string; data?: Record<string, unknown>;
}
export interface Phase {
  attempt: string; phase_id: string; name: string; begin_step: number; begin_at: number;
  end_step: number | null; end_at: number | null; path: string | null; text: string;
}
export interface Cause { text: string; signs_seen: number; signs_of: number; why: string }
export interface Evidence {
  rule?: string; version?: number; value?: Cell; threshold?: Cell; unit?: string; n?: number;
  series?: string[]; numbers?: [string, number, string, string][]; summary?: string;
  causes?: Cause[]; first_action?: string; clears?: string;
}
export interface Alert {
  id: string; run: string; detector: string; subject: string; episode: number;
  state: 'firing' | 'acknowledged' | 'resolved'; severity: string; title: string; attempt: string;
  onset_step: number; onset_at: number; opened_step: number; opened_at: number; last_step: number;
  evidence: Evidence; acknowledged_at: number | null; acknowledged_by: string | null;
  acknowledged_note: string; resolved_step: number | null; resolved_at: number | null;
  resolved_reason: string | null; run_name: string; cost_so_far: number | null;
  hours_since_onset: number | null; tokens_since_onset: number | null; last_checkpoint: Checkpoint | null;
  lost_by_going_back_steps: number | null; lost_by_going_back_hours: number | null; runbook: string; currency?: string;
  /** The first alert of the same cause in this run, or this one. */
  incident: string;
}
export interface AlertChange { old: string; new: string; reason: string; at: number; step: number | null; by: string | null }
export interface Try { at: number; status: number | null; latency_s: number; error: string }
export interface Message { id: string; channel: string; channel_name: string; moment: string; state: string; created_at: number; settled_at: number | null; tries: Try[] }
export interface IncidentMember { id: string; detector: string; title: string; severity: string; state: string; onset_step: number }
export interface AlertDetail extends Alert {
  changes: AlertChange[]; messages: Message[]; text: string;
  incident_headline: string; incident_alerts: IncidentMember[];
}
export interface Sampling { id: string; weights_step: number; at: number; day: string; attempt: string; count: number; prompt_set_hash: string }
export interface AnswerOut {
  text: string; token_texts?: string[]; token_logprobs?: Cell[]; stop_reason?: string;
  reference_nll?: Cell; weights_step?: number; at?: number; truncated?: boolean; text_bytes?: number;
  length?: number; words?: number; confidence?: number | null; repetition?: number; checks?: Record<string, boolean>;
}
export type Fate = 'worse' | 'better' | 'changed' | 'same' | 'apart' | 'missing';
export interface Pair {
  prompt_id: string; prompt: string; left: AnswerOut | null; right: AnswerOut | null;
  diff: ['same' | 'cut' | 'add', string][]; comparable: boolean; differs: string[]; verdict: string; fate: Fate; rough?: boolean;
}
export interface Pairs { left: Sampling | null; right: Sampling | null; pairs: Pair[]; note: string }
export interface SetNumbers {
  answers: number; length: number | null; words: number | null; confidence: number | null; first_token: number | null;
  entropy: number | null; ends: number | null; repeats: number | null; reference_nll: number | null; templates: number;
  checks: Record<string, number>; stops: Record<string, number>;
}
export interface TrendPoint {
  sampling: string; weights_step: number; at: number; day: string; prompt_set_hash: string; numbers: SetNumbers;
  like_before: number | null; like_first: number | null;
}
export interface AlertMark { id: string; detector: string; title: string; state: string; onset_step: number; opened_step: number; opened_at: number; resolved_step: number | null }
export interface AnswerTrends {
  zone: string; points: TrendPoint[]; days: { day: string; samplings: string[]; shown: string | null }[];
  prompts: { prompt_id: string; length: (number | null)[]; confidence: (number | null)[] }[]; alerts: AlertMark[]; sets: string[];
}

/** A line of points as the charts hold it; `values` has NaN where the value is not finite. */
export interface Track {
  key: string; attempt: string; ghost: boolean; raw: boolean;
  steps: number[]; times: number[]; values: number[];
  low: number[] | null; high: number[] | null; broken: number[]; mixed: [number, number, number][];
}
export type Rows = Record<string, [number, number, Cell][]>;

export interface LineSpec {
  key: string; name: string; colour: string; dash?: 'solid' | 'dash' | 'dot'; scale?: number;
  noisy?: boolean; dots?: boolean; format?: (value: number) => string;
}
export interface ChartSpec {
  title: string; lines: LineSpec[]; unit?: string; height?: number; small?: boolean; names?: boolean;
  yMin?: number; yMax?: number; log?: boolean; ref?: number; fixed?: boolean;
  /** Band with these line names between them is filled. */
  between?: [string, string];
  empty?: string;
}
export interface Band { kind: 'act' | 'look'; from: number; told: number; to: number; name: string; series: string[]; id: string }
export interface View {
  x: 'step' | 'tokens' | 'hours' | 'clock'; log: boolean; smooth: number;
  from: number | null; to: number | null; ghosts: boolean;
}
export interface Frame {
  width: number; height: number; left: number; right: number; top: number; bottom: number;
  x: (step: number) => number; y: (value: number) => number | null; from: number; to: number;
}

export interface PlotlyElement extends HTMLElement {
  on(event: string, handler: (data: Record<string, unknown>) => void): void;
}
declare global {
  const Plotly: {
    react(host: HTMLElement, data: object[], layout: object, config: object): Promise<unknown>;
    purge(host: HTMLElement): void;
  };
}

/** One field of a format's form. */
export interface FormField {
  name: string;
  label: string;
  secret: boolean;
  required: boolean;
  help: string;
  choices: string[];
  default: string;
}

export interface Format {
  name: string;
  label: string;
  about: string;
  /** Why it cannot be used here, and what would wake it; else empty. */
  asleep: string;
  fields: FormField[];
}

/** A channel; secrets in `config` are masked. */
export interface Channel {
  id: string;
  name: string;
  format: string;
  label: string;
  enabled: boolean;
  disabled_reason: string;
  fixed: boolean;
  asleep: string;
  route: { severity: 'info' | 'warning' | 'critical'; tags: string[] };
  quiet_hours: string;
  config: Record<string, string>;
}

export interface TestAnswer {
  moment: string;
  sent: boolean;
  status: number | null;
  answer: string;
  error: string;
  latency_s: number;
}

export interface Rule {
  id: string;
  name: string;
  series: string;
  kind: 'threshold' | 'trend';
  direction: 'above' | 'below';
  value: number;
  clear: number | null;
  window: number;
  k: number;
  m: number;
  calm: number;
  for_s: number;
  calm_s: number;
  severity: 'info' | 'warning' | 'critical';
  run: string;
  tag: string;
  enabled: boolean;
}

export interface Silence {
  id: string;
  run: string;
  detector: string;
  tag: string;
  zone: string;
  starts_at: number | null;
  ends_at: number | null;
  begin: string;
  end: string;
  days: number[];
  comment: string;
  by: string;
  /** When it ends, if it holds now. */
  until: number | null;
}

/** A detector and its parameters, values as they are typed. */
export interface Judge {
  name: string;
  title: string;
  about: string;
  hears: boolean;
  params: { name: string; shipped: string; value: string }[];
  changed_at: number | null;
  by: string;
}

export interface TriedAlert {
  severity: 'info' | 'warning' | 'critical';
  subject: string;
  title: string;
  onset_step: number;
  opened_step: number;
  resolved_step: number | null;
  cause: string;
  was_fine: boolean;
}

export interface TriedRun {
  run: string;
  name: string;
  steps: number;
  before: TriedAlert[];
  after: TriedAlert[];
  broken: string;
}

export interface Tried {
  detector: string;
  runs: TriedRun[];
  left: string[];
  seconds: number;
}
