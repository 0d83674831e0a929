import type { Config } from './options.ts';
import { pairKind } from './pairs.ts';

type Discovery = Pick<
  Config,
  | 'serviceDiscovery'
  | 'selector'
  | 'prefillSelector'
  | 'decodeSelector'
  | 'pdDisaggregation'
  | 'vllmPdDisaggregation'
  | 'kvConnector'
>;

/** @returns what is wrong with the options about finding pods, in words for the user; '' for nothing. */
export function discoveryProblem(config: Discovery): string {
  const { serviceDiscovery, selector, prefillSelector, decodeSelector } = config;
  const selectors = {
    '--selector': selector,
    '--prefill-selector': prefillSelector,
    '--decode-selector': decodeSelector,
  };
  const given = Object.entries(selectors).flatMap(([flag, labels]) => (labels.length > 0 ? [flag] : []));
  if (!serviceDiscovery) return given.length === 0 ? '' : `${given[0]} has no effect without --service-discovery`;
  if (pairKind(config) === null) {
    const ofRole = given.find((flag) => flag !== '--selector');
    if (ofRole !== undefined)
      return `${ofRole} needs --pd-disaggregation (SGLang) or --vllm-pd-disaggregation: without them engines serve whole requests`;
    return given.length > 0
      ? ''
      : '--service-discovery needs --selector: which pods are engines, for example --selector app=vllm';
  }
  if (selector.length > 0)
    return '--selector names engines that serve whole requests: for pairs give --prefill-selector and --decode-selector';
  if (given.length === 0)
    return '--service-discovery needs --prefill-selector and --decode-selector: which pods are engines of which role';
  const isSame = given.length === 2 && String(prefillSelector.toSorted()) === String(decodeSelector.toSorted());
  return isSame ? '--prefill-selector and --decode-selector are the same: each must match other pods' : '';
}
