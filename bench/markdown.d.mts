/** The text of a page with `content` between the markers `<!-- part -->` and `<!-- /part -->`. */
export function withPart(text: string, part: string, content: string): string;
